"""Other builds of the core than the shipped one, from the same source: what only tests need is compiled in."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

from Cython.Compiler.Main import CompilationOptions, compile_single
from runs import ROOT

CORE = ROOT / "shmaccum" / "core"


def in_c(source: Path, result: Path) -> str:
    """Return the C that Cython makes of a module, which it writes to ``result``."""
    options = CompilationOptions(output_file=str(result), language_level=3)
    made = compile_single(str(source), options, full_module_name=f"shmaccum.{source.stem}")
    assert made.num_errors == 0
    return result.read_text()


def build_core(directory: Path, *flags: str) -> ModuleType:
    """Compile the core with more flags of the C compiler, and import it beside the shipped one."""
    in_c(CORE / "_core.pyx", directory / "_core.c")
    module = directory / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))
    includes = f"-I{sysconfig.get_path('include')}", f"-I{CORE}"
    options = ("-O1", "-g0", "-w", "-shared", "-fPIC", *includes, *flags)
    subprocess.run([*compiler, *options, str(directory / "_core.c"), "-o", str(module)], check=True)
    spec = importlib.util.spec_from_file_location("shmaccum._core", module)
    assert spec is not None
    assert spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    return core
