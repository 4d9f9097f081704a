"""Compiles the scenarios over a copy of the core, small and perhaps changed in one place."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from tools.support.compiling import compile_extension

HERE: Final = Path(__file__).parent
CORE: Final = HERE.parents[1] / "shmaccum" / "core"
_POOL: Final = ("layout.pxi", "segment.pxi", "words.pxi", "lock.pxi", "pool.pxi")
_BATCHES: Final = (
    "queue",
    "repair",
    "rings",
    "futures",
    "reports",
    "results",
    "statistics",
    "checksum",
    "append",
    "send",
    "columns",
    "drain",
    "tables",
    "ready",
    "batch",
    "sequences",
)
_INCLUDED: Final = {"memory": _POOL, "batches": (*_POOL, *(f"{name}.pxi" for name in _BATCHES))}
"""Of each file of scenarios, what it needs of the core."""
_SCENARIOS: Final = {
    "memory": ("memory.pxi",),
    "batches": ("batches.pxi", "lanes.pxi", "expiry.pxi", "numbering.pxi"),
}
_SMALL: Final = {"MAX_PROCESSES": 4, "WAITERS": 4, "SPINS": 0, "SPINS_FOR_SENDER": 0}
"""Sizes, for few states; no process spins."""


def build(
    directory: Path, scenarios: str, changes: dict[str, tuple[str, str]], *, with_threads: bool = False
) -> ModuleType:
    """Compile scenarios, and import them.

    Args:
        directory: to build in; it is empty.
        scenarios: the file that has them, without its suffix.
        changes: by file of the core, a text and what stands there instead.
        with_threads: processes are threads, with ThreadSanitizer, which the interpreter has been started with.

    Raises:
        ValueError: a text is not in its file, or more than once.
    """
    for name in (*_INCLUDED[scenarios], "atomics.h", "crc32c.h"):
        text = (CORE / name).read_text()
        text = text.replace("clock_gettime(CLOCK_MONOTONIC, &now)", "memset(&now, 0, sizeof(now))")  # it stands still
        for constant, value in _SMALL.items():
            text = re.sub(rf"^(    {constant} = )[0-9]+", rf"\g<1>{value}", text, flags=re.MULTILINE)
        if name in changes:
            old, new = changes[name]
            if text.count(old) != 1:
                raise ValueError(f"{name} has {text.count(old)} times: {old}")
            text = text.replace(old, new)
        (directory / name).write_text(text)
    files = ("engine.pxi", *_SCENARIOS[scenarios])
    for name in (*files, "engine.h"):
        shutil.copy(HERE / name, directory)
    if with_threads:
        shutil.copy(HERE / "threads.h", directory / "engine.h")
    head = (CORE / "_core.pyx").read_text().partition('include "')[0]
    included = "".join(f'include "{name}"\n' for name in (*_INCLUDED[scenarios], *files))
    source, code = directory / f"explored_{scenarios}.pyx", directory / f"explored_{scenarios}.c"
    source.write_text(head + included)
    subprocess.run([sys.executable, "-m", "cython", source, "-o", code], check=True)
    how = ("-fsanitize=thread", "-g1", "-Wno-tsan") if with_threads else ("-DSHMACCUM_EXPLORE",)
    return compile_extension(code, code.stem, f"-I{directory}", *how, "-lpthread")
