"""The C library and CPython of another kind of machine, from Debian's packages, for its emulator.

They are unpacked beside the build and not installed: an emulator looks for libraries below the directory that it is
given. So neither the system's list of packages nor its files change, and no container is needed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tools.wheels.interpreters import HOME
from tools.wheels.targets import WheelError

_DEBIAN: Final = {"aarch64": "arm64"}
_SUITE: Final = "trixie"
_PACKAGES: Final = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libexpat1"),
    *("libssl3t64", "libzstd1", "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib"),
)
DEBIAN_PYTHON: Final = "3.13"
"""The version of CPython that comes with the suite."""


def system_root(machine: str) -> Path:
    """Return a directory with a machine's libraries and its CPython, fetched if it is not there yet.

    Raises:
        WheelError: apt-get cannot fetch them.
    """
    root = HOME / "root" / machine
    stamp = root / "complete"
    if stamp.exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    apt = _private_apt(machine)
    _run(["apt-get", "update", "--quiet"], apt)
    _run(["apt-get", "download", "--quiet", *_PACKAGES], apt)
    for package in sorted(apt.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(root)], apt)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # as the package base-files makes it
    stamp.touch()
    return root


def _private_apt(machine: str) -> Path:
    """Return a directory in which apt-get fetches another machine's packages, apart from the system's."""
    directory = HOME / "apt" / machine
    for below in ("state/lists/partial", "cache/archives/partial"):
        (directory / below).mkdir(parents=True, exist_ok=True)
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    done = subprocess.run(listed, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise WheelError(f"libraries for {machine} come from Debian's packages, and this machine's apt lists none")
    architecture = _DEBIAN[machine]
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb [arch={architecture} signed-by={keys}] {done.stdout.split()[0]} {_SUITE} main\n"
    (directory / "sources.list").write_text(source)
    (directory / "status").touch()
    (directory / "apt.conf").write_text(
        f'APT::Architecture "{architecture}"; APT::Architectures {{ "{architecture}"; }};\n'
        f'APT::Sandbox::User "{os.environ.get("USER", "root")}"; Acquire::Languages "none";\n'
        f'Dir::State "{directory}/state"; Dir::State::status "{directory}/status"; Dir::Cache "{directory}/cache";\n'
        f'Dir::Etc::SourceList "{directory}/sources.list"; Dir::Etc::SourceParts "/nonexistent";\n'
    )
    return directory


def _run(command: list[str], directory: Path) -> None:
    environment = os.environ | {"APT_CONFIG": str(directory / "apt.conf")}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"another machine's libraries cannot be fetched: {' '.join(command)}: {done.stderr[-1000:]}")
