"""An environment with a wheel in it, for this machine, or for another machine or C library.

For another one, the environment's `python` is a script that starts the emulator, or musl's loader. So every process
that the package starts runs there, too. pip then runs on this machine, and gets the other platform as options.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tools.wheels import debian, musl
from tools.wheels.building import cross_compiler
from tools.wheels.interpreters import installation
from tools.wheels.targets import Target, WheelError

_DEPENDENCIES: Final = ("numpy", "cramjam", "rich")
"""Of the package, but for posix_ipc."""


class UntriedError(Exception):
    """No interpreter can run the wheel here; the message has why."""


class Installed(NamedTuple):
    """What `pip install` did.

    Attributes:
        seconds: with the dependencies from pip's cache; None if pip ran for another machine.
        remark: what was not as on a user's machine; empty if nothing.
    """

    seconds: float | None
    remark: str


class Environment:
    """A directory with an interpreter and its packages.

    Attributes:
        target: what it is for.
        directory: where it is.
        python: starts its interpreter.
        packages: the directory of what is installed.
        variables: for its processes: this process's, without what names packages of this source tree.

    Raises:
        WheelError: there is no such interpreter.
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
        emulating = debian.emulator(target.platform.machine)
        if target.platform.is_musl:
            self._starter = f'{musl.loader()} --argv0 "$0"'
        elif emulating:
            variables = f"-E LD_LIBRARY_PATH={libraries}" if libraries else ""
            self._starter = f'{emulating} -L {debian.system_root(target.platform.machine)} {variables} -0 "$0"'
        else:
            self.variables["LD_LIBRARY_PATH"] = libraries

    def install(self, wheel: Path, *others: str) -> Installed:
        """Make the environment in its directory, which is empty, and install a wheel with its dependencies.

        Args:
            wheel: it.
            others: packages that are installed, too.

        Raises:
            WheelError: it cannot be installed.
        """
        if self._starter:
            return self._install_foreign(str(wheel), *others)
        self.run(str(self._interpreter), "-m", "venv", str(self.directory / "venv"))
        start = time.monotonic()
        self.run(str(self.python), "-m", "pip", "install", "--quiet", str(wheel), *others)
        return Installed(time.monotonic() - start, "")

    def run(self, *command: str, **variables: str) -> str:
        """Run a command in the environment's directory; return what it wrote.

        Raises:
            WheelError: it failed.
        """
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
            return Installed(None, "")
        sources = ["--no-deps", "--no-binary=:all:", "--no-cache-dir", "posix_ipc"]
        self.run(*pip, *sources, **cross_compiler(self.target))
        self.run(*pip, "--no-deps", *chosen, wheel)
        self.run(*pip, *chosen, *_DEPENDENCIES, *others)
        return Installed(None, "PyPI has no wheel of posix_ipc for it: compiled from its sdist")

    def _chosen(self) -> list[str]:
        """Return pip's options for the target."""
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
        if version != debian.PYTHON:
            raise UntriedError(f"no package registry has a CPython for musl; here, {debian.PYTHON} is compiled")
        return musl.python_for_musl(), ""
    if debian.emulator(platform.machine) and version == debian.PYTHON:  # Maven has none for this machine
        return debian.system_root(platform.machine) / "usr" / "bin" / f"python{version}", ""
    base = installation(target.python, platform.classifier or "")
    return base / "bin" / f"python{version}", str(base)  # with the libffi that it was built with


def clean_variables() -> dict[str, str]:
    """Return this process's environment without what names packages of this source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHMACCUM_"))}
