"""The core's critical sections: nothing of Python, no allocation, no system call, no plain access to a shared word.

Cython refuses Python objects in a ``nogil`` function, but not what takes the GIL behind one's back to raise an error:
a checked division, a checked index. Such a function would wait for the GIL with a lock of the slab held.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from core_builds import CORE, core_in_c, in_c

FORBIDDEN = re.compile(
    r"(?:__Pyx_)?(?:PyGILState|PyErr|PyEval)_\w+|\bPy_X?(?:INCREF|DECREF)\b|__Pyx_\w*(?:Raise|Unraisable)\w*|\b\w*alloc\b"
)


ALLOWED = {
    *("load_relaxed", "load_acquire", "store_relaxed", "store_release", "compare_and_swap", "fence", "relax", "step"),
    *("copy_bytes", "crc32c_by_instruction", "memcmp", "memcpy", "memset", "ldexp"),
    *("__builtin_clzll", "__builtin_ctzll", "__builtin_popcountll"),
    *("shmaccum_ask_for", "shmaccum_read"),  # prefetch, and read of memory that is not shared
    "clock_gettime",  # without a system call: CLOCK_MONOTONIC and CLOCK_REALTIME are read in user space
    *("sem_trywait", "sem_getvalue", "sem_post"),  # of the pool's gate; who posts has stored the free owner word before
}
"""Functions of C that may be called without the GIL."""
_KEYWORDS = {"for", "if", "sizeof", "switch", "while"}


def sections(source: str) -> list[str]:
    """Return the names of the functions that run without the GIL."""
    return re.findall(r"^cdef [^\n]*?(\w+)\([^)]*\) noexcept nogil:", source, re.MULTILINE)


def bodies_of(code: str) -> dict[str, str]:
    """Return the generated C of all functions, without comments, by name behind ``__pyx_f_``."""
    found = re.findall(r"^static [^\n;]*__pyx_f_(\w*)\([^;{]*\{\n(.*?)^\}$", code, re.MULTILINE | re.DOTALL)
    return {name: re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL) for name, body in found}


def calls(body: str) -> set[str]:
    """Return what a function of the generated C calls, other functions of the core aside."""
    called = re.findall(r"\b([A-Za-z_]\w*)\s*\(", body)
    return {name for name in called if not name.startswith("__pyx_f_")} - _KEYWORDS


def impure(code: str, names: list[str]) -> dict[str, set[str]]:
    """Return which of these functions contain something forbidden, and what."""
    found, bodies = {}, bodies_of(code)
    for name in names:
        body = bodies[min((known for known in bodies if known.endswith(f"_{name}")), key=len)]
        if used := set(FORBIDDEN.findall(body)) | (calls(body) - ALLOWED):
            found[name] = used
    return found


def test_no_section_uses_python(build_directory: Path) -> None:
    source = "\n".join(path.read_text() for path in CORE.glob("*.p[xy]*"))
    names = sections(source)
    assert "lay_out" in names
    assert impure(core_in_c(build_directory).read_text(), names) == {}


@pytest.mark.parametrize(
    ("directives", "statement", "found"),
    [
        ("boundscheck=False, cdivision=False", "return a % b", {"__Pyx_PyGILState_Ensure", "PyErr_SetString"}),
        ("boundscheck=False, cdivision=True", "return a % b", set()),
        ("boundscheck=False, cdivision=True", "return <long>malloc(a)", {"malloc"}),
        ("boundscheck=False, cdivision=True", "return getpid()", {"getpid"}),
    ],
)
def test_what_takes_the_gil_is_found(tmp_path: Path, directives: str, statement: str, found: set[str]) -> None:
    module = tmp_path / "careless.pyx"
    module.write_text(
        f"# cython: {directives}\nfrom libc.stdlib cimport malloc\nfrom posix.unistd cimport getpid\n"
        f"cdef long section(long a, long b) noexcept nogil:\n    {statement}\n"
        "def call(a, b):\n    return section(a, b)\n"
    )
    used = impure(in_c(module, tmp_path / "careless.c"), sections(module.read_text())).get("section", set())
    assert found <= used
    assert bool(used) == bool(found)


@pytest.mark.parametrize(
    ("access", "compiles"),
    [("load_relaxed(&superblock.magic)", True), *((f"superblock.magic{end}", False) for end in ("", " + 1", ".value"))],
)
def test_a_plain_access_to_a_shared_word_does_not_compile(tmp_path: Path, access: str, *, compiles: bool) -> None:
    module = tmp_path / "plain.pyx"
    module.write_text(
        f"from libc.stdint cimport int64_t, uint64_t\n{(CORE / 'layout.pxi').read_text()}\n"
        f"cdef uint64_t read(const Superblock *superblock) noexcept nogil:\n    return {access}\n"
    )
    with nullcontext() if compiles else pytest.raises(AssertionError):
        in_c(module, tmp_path / "plain.c")
