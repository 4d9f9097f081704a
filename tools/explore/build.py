"""Compiles the scenarios over a copy of the core, small and perhaps changed in one place."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Final

HERE: Final = Path(__file__).parent
CORE: Final = HERE.parents[1] / "shmaccum" / "core"
_INCLUDED: Final = ("layout.pxi", "segment.pxi", "words.pxi", "lock.pxi", "pool.pxi")
_SMALL: Final = {"MAX_PROCESSES": 4, "WAITERS": 4, "SPINS": 0, "SPINS_FOR_SENDER": 0}
"""Sizes, for few states: a process that spins does nothing but look once more."""


def build(directory: Path, changes: dict[str, tuple[str, str]]) -> ModuleType:
    """Compile the scenarios, and import them.

    Args:
        directory: to build in; it is empty.
        changes: by file of the core, a text and what stands there instead.

    Raises:
        ValueError: a text is not in its file, or more than once.
    """
    for name in (*_INCLUDED, "atomics.h"):
        text = (CORE / name).read_text()
        for constant, value in _SMALL.items():
            text = re.sub(rf"^(    {constant} = )[0-9]+", rf"\g<1>{value}", text, flags=re.MULTILINE)
        if name in changes:
            old, new = changes[name]
            if text.count(old) != 1:
                raise ValueError(f"{name} has {text.count(old)} times: {old}")
            text = text.replace(old, new)
        (directory / name).write_text(text)
    for name in ("scenarios.pxi", "engine.h"):
        shutil.copy(HERE / name, directory)
    head = (CORE / "_core.pyx").read_text().partition('include "')[0]
    included = "".join(f'include "{name}"\n' for name in (*_INCLUDED, "scenarios.pxi"))
    (directory / "scenarios.pyx").write_text(head + included)
    code, module = directory / "scenarios.c", directory / f"scenarios{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run([sys.executable, "-m", "cython", directory / "scenarios.pyx", "-o", code], check=True)
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not shutil.which(command[0]):
        command = [sys.executable, "-m", "ziglang", "cc"]
    options = ("-O1", "-g0", "-w", "-shared", "-fPIC", "-DSHMACCUM_EXPLORE")
    includes = f"-I{sysconfig.get_path('include')}", f"-I{directory}"
    subprocess.run([*command, *options, *includes, str(code), "-o", str(module), "-lpthread"], check=True)
    spec = importlib.util.spec_from_file_location("scenarios", module)
    assert spec is not None
    assert spec.loader is not None
    scenarios = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenarios)
    return scenarios
