"""Other builds of the core than the shipped one, from the same source: what only tests need is compiled in."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from Cython.Compiler.Main import CompilationOptions, compile_single
from runs import ROOT

from tools.support.compiling import compile_extension

CORE = ROOT / "shmaccum" / "core"


def in_c(source: Path, result: Path) -> str:
    """Return the C that Cython makes of a module, which it writes to ``result``."""
    options = CompilationOptions(output_file=str(result), language_level=3)
    made = compile_single(str(source), options, full_module_name=f"shmaccum.{source.stem}")
    assert made.num_errors == 0
    return result.read_text()


def build_core(directory: Path, *flags: str) -> ModuleType:
    """Compile the core with more flags of the C compiler, and import it beside the shipped one."""
    code = directory / "_core.c"
    in_c(CORE / "_core.pyx", code)
    return compile_extension(code, "shmaccum._core", f"-I{CORE}", *flags)
