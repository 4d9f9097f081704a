"""Tries a wheel as its users do: a new environment, `pip install`, and a program outside the source tree.

For another kind of machine, the environment's `python` is a script that starts the emulator. So every process that the
package starts is emulated, too. pip then runs on this machine, and gets the other machine as options.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.wheels.building import cross_compiler
from tools.wheels.emulated import DEBIAN_PYTHON, system_root
from tools.wheels.interpreters import emulator, installation
from tools.wheels.targets import Target, WheelError

_PROGRAM: Final = Path(__file__).with_name("send.py")


@dataclass(frozen=True)
class Trial:
    """What a trial has shown.

    Attributes:
        install_seconds: of `pip install`, with its dependencies from pip's cache; None if pip ran for another machine.
        version: of the CPython that ran.
        machine: that it ran on, or that was emulated.
        remark: what was not as on a user's machine; empty if nothing.
    """

    install_seconds: float | None
    version: str
    machine: str
    remark: str


class UntriedError(Exception):
    """No interpreter can run the wheel here; the message has why."""


def try_wheel(wheel: Path, target: Target) -> Trial:
    """Install a wheel and send records with it.

    Raises:
        WheelError: it cannot be installed, or records are missing.
        UntriedError: nothing runs it here.
    """
    with tempfile.TemporaryDirectory(prefix="shmaccum-wheel-") as scratch:
        directory = Path(scratch)
        if target.platform.is_musl:
            raise UntriedError("no package registry has a CPython for musl")
        foreign = emulator(target.platform.machine)
        if foreign:
            python, environment, remark = _foreign(wheel, target, directory, foreign)
            seconds = None
        else:
            python, environment, seconds = _native(wheel, target, directory)
            remark = ""
        program = str(shutil.copy(_PROGRAM, directory))
        told = _run(target, [str(python), program], directory, environment)
        where, machine, version = told.split()
        if not Path(where).is_relative_to(directory):
            raise WheelError(f"{target}: the program imported another shmaccum: {where}")
        return Trial(seconds, version, machine, remark)


def _native(wheel: Path, target: Target, directory: Path) -> tuple[Path, dict[str, str], float]:
    base = installation(target.python, target.platform.classifier or "")
    environment = _clean() | {"LD_LIBRARY_PATH": str(base)}  # it brings the libffi that it was built with
    interpreter = base / "bin" / f"python{target.python.version}"
    _run(target, [str(interpreter), "-m", "venv", str(directory / "venv")], directory, environment)
    python = directory / "venv" / "bin" / "python"
    start = time.monotonic()
    _run(target, [str(python), "-m", "pip", "install", "--quiet", str(wheel)], directory, environment)
    return python, environment, time.monotonic() - start


def _foreign(wheel: Path, target: Target, directory: Path, foreign: str) -> tuple[Path, dict[str, str], str]:
    root = system_root(target.platform.machine)
    version = target.python.version
    if version == DEBIAN_PYTHON:  # Maven has none for this machine
        interpreter, libraries = root / "usr" / "bin" / f"python{version}", ""
    else:
        base = installation(target.python, target.platform.classifier or "")
        interpreter, libraries = base / "bin" / f"python{version}", f"-E LD_LIBRARY_PATH={base}"
    python = directory / "venv" / "bin" / "python"
    packages = directory / "venv" / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    python.parent.mkdir()
    # With its own name as the first argument, the interpreter finds this environment, and starts others by this script.
    python.write_text(f'#!/bin/sh\nexec {foreign} -L {root} {libraries} -0 "$0" {interpreter} "$@"\n')
    python.chmod(0o755)
    (directory / "venv" / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\nversion = {version}\n")
    remark = _install_for(wheel, target, packages, directory)
    return python, _clean(), remark


def _install_for(wheel: Path, target: Target, packages: Path, directory: Path) -> str:
    """Install by this machine's pip for the target; return what PyPI has no wheel of."""
    platforms = [f"manylinux_2_{minor}_{target.platform.machine}" for minor in range(28, 16, -1)]
    chosen = [
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", target.python.version),
        *(f"--abi={abi}" for abi in (target.python.tag, "abi3", "none")),
        *(f"--platform={platform}" for platform in [*platforms, f"manylinux2014_{target.platform.machine}"]),
    ]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
    remark = ""
    if not _has_wheel("posix_ipc", chosen, directory):
        remark = "PyPI has no wheel of posix_ipc for it: compiled from its sdist"
        environment = _clean() | cross_compiler(target)
        _run(target, [*pip, "--no-deps", "--no-binary=:all:", "--no-cache-dir", "posix_ipc"], directory, environment)
        _run(target, [*pip, "--no-deps", *chosen, str(wheel)], directory, _clean())
        others = ["numpy", "crc32c", "cramjam", "kafka-python<3.1", "rich"]
        _run(target, [*pip, *chosen, *others], directory, _clean())
    else:
        _run(target, [*pip, *chosen, str(wheel)], directory, _clean())
    return remark


def _has_wheel(name: str, chosen: list[str], directory: Path) -> bool:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        *chosen,
        "--dest",
        str(directory / "have"),
    ]
    done = subprocess.run([*command, name], capture_output=True, cwd=directory, env=_clean(), check=False)
    shutil.rmtree(directory / "have", ignore_errors=True)
    return not done.returncode


def _clean() -> dict[str, str]:
    """Return this process's environment without what names packages of this source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHMACCUM_"))}


def _run(target: Target, command: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise WheelError(f"{target}: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout
