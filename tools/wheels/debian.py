"""Debian's packages and sources, unpacked beside the build and not installed.

So neither the system's list of packages nor its files change, and no container is needed. apt-get gets a directory of
its own for each machine.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tools.wheels.interpreters import HOME
from tools.wheels.targets import WheelError

SUITE: Final = "trixie"
PYTHON: Final = "3.13"
"""The version of CPython that comes with the suite."""
_ARCHITECTURES: Final = {"aarch64": "arm64", "x86_64": "amd64"}
_EMULATED: Final = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libexpat1"),
    *("libssl3t64", "libzstd1", "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib"),
)


def system_root(machine: str) -> Path:
    """Return a directory with another machine's C library and CPython, for its emulator; fetched if it is not there.

    Raises:
        WheelError: apt-get cannot fetch them.
    """
    return packages(machine, "root", _EMULATED)


def emulator(machine: str) -> Path | None:
    """Return the program that runs another machine's programs; None if this machine runs them itself.

    Raises:
        WheelError: apt-get cannot fetch it.
    """
    own = os.uname().machine
    if machine == own:
        return None
    return packages(own, "qemu", ("qemu-user",)) / "usr" / "bin" / f"qemu-{machine}"


def packages(machine: str, name: str, wanted: tuple[str, ...]) -> Path:
    """Return a directory with the files of a machine's packages, fetched if they are not there yet.

    Raises:
        WheelError: apt-get cannot fetch them.
    """
    root = HOME / name / machine
    stamp = root / "complete"
    if stamp.exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    apt = _private_apt(machine)
    _run(["apt-get", "download", "--quiet", *wanted], apt)
    for package in wanted:
        _run(["dpkg-deb", "--extract", str(next(apt.glob(f"{package}_*.deb"))), str(root)], apt)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # as the package base-files makes it
    stamp.touch()
    return root


def unpack_source(package: str, directory: Path, suite: str = SUITE) -> Path:
    """Unpack a package's source as its authors published it, without Debian's changes; return its directory.

    Args:
        package: its name.
        directory: to unpack into.
        suite: whose version to take.

    Raises:
        WheelError: apt-get cannot fetch it.
    """
    apt = _private_apt("x86_64", suite)
    _run(["apt-get", "source", "--quiet", "--download-only", "--tar-only", package], apt)
    archive = next(apt.glob(f"{package}_*.orig.tar.*"))
    where = directory / package
    with tarfile.open(archive) as tar:
        tar.extractall(where, filter="data")
    return next(where.iterdir())


def _private_apt(machine: str, suite: str = SUITE) -> Path:
    """Return a directory in which apt-get fetches, apart from the system's; its lists are new."""
    directory = HOME / "apt" / machine
    for below in ("state/lists/partial", "cache/archives/partial"):
        (directory / below).mkdir(parents=True, exist_ok=True)
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(listed, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise WheelError(f"files for {machine} come from Debian's packages, and this machine's apt lists none")
    architecture = _ARCHITECTURES[machine]
    place = f"signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {done.stdout.split()[0]} {suite} main\n"
    (directory / "sources.list").write_text(f"deb [arch={architecture} {place}deb-src [{place}")
    (directory / "status").touch()
    (directory / "apt.conf").write_text(
        f'APT::Architecture "{architecture}"; APT::Architectures {{ "{architecture}"; }};\n'
        f'APT::Sandbox::User "{os.environ.get("USER", "root")}"; Acquire::Languages "none";\n'
        f'Dir::State "{directory}/state"; Dir::State::status "{directory}/status"; Dir::Cache "{directory}/cache";\n'
        f'Dir::Etc::SourceList "{directory}/sources.list"; Dir::Etc::SourceParts "/nonexistent";\n'
    )
    _run(["apt-get", "update", "--quiet"], directory)
    return directory


def _run(command: list[str], directory: Path) -> None:
    environment = os.environ | {"APT_CONFIG": str(directory / "apt.conf")}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"Debian's files cannot be fetched: {' '.join(command)}: {done.stderr[-1000:]}")
