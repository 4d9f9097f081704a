"""Other builds of the core than the shipped one, from the same source: what only tests need is compiled in."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from Cython.Compiler.Main import CompilationOptions, compile_single
from runs import ROOT

from tools.support.compiling import compile_extension, import_extension

CORE = ROOT / "shmaccum" / "core"


def in_c(source: Path, result: Path) -> str:
    """Return the C that Cython makes of a module, which it writes to ``result``."""
    options = CompilationOptions(output_file=str(result), language_level=3)
    made = compile_single(str(source), options, full_module_name=f"shmaccum.{source.stem}")
    assert made.num_errors == 0
    return result.read_text()


def core_in_c(directory: Path) -> Path:
    """Have Cython make the C of the core, once for all processes that share the directory; return its file."""
    code = directory / "_core.c"
    with _alone_in(directory):
        if not code.exists():
            made = directory / "unfinished.c"
            in_c(CORE / "_core.pyx", made)
            made.rename(code)
    return code


def build_core(directory: Path, *flags: str) -> ModuleType:
    """Compile the core with more flags, once for all processes, and import it beside the shipped one."""
    code = core_in_c(directory)
    with _alone_in(directory):
        if built := sorted(directory.glob("_core.*.so")):
            return import_extension(built[0], "shmaccum._core")
        return compile_extension(code, "shmaccum._core", f"-I{CORE}", *flags)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
