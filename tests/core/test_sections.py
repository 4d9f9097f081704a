"""The compiled critical sections: nothing of Python, and no allocation, in a function that runs without the GIL.

Cython refuses Python objects in a ``nogil`` function, but not what takes the GIL behind one's back to raise an error:
a checked division, a checked index. Such a function would wait for the GIL with a lock of the slab held.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from core_builds import CORE, in_c

FORBIDDEN = re.compile(
    r"(?:__Pyx_)?(?:PyGILState|PyErr|PyEval)_\w+|\bPy_X?(?:INCREF|DECREF)\b|__Pyx_\w*(?:Raise|Unraisable)\w*|\b\w*alloc\b"
)


def sections(source: str) -> list[str]:
    """Return the names of the functions that run without the GIL."""
    return re.findall(r"^cdef [^\n]*?(\w+)\([^)]*\) noexcept nogil:", source, re.MULTILINE)


def impure(code: str, names: list[str]) -> dict[str, set[str]]:
    """Return which of these functions contain something forbidden, and what."""
    found = {}
    for name in names:
        body = re.search(rf"^static [^\n;]*__pyx_f_\w*_{name}\([^;{{]*\{{\n(.*?)^\}}$", code, re.MULTILINE | re.DOTALL)
        assert body, f"{name} is not in the generated C"
        if used := set(FORBIDDEN.findall(re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))):
            found[name] = used
    return found


def test_no_section_uses_python(tmp_path: Path) -> None:
    source = "\n".join(path.read_text() for path in CORE.glob("*.p[xy]*"))
    names = sections(source)
    assert "lay_out" in names
    assert impure(in_c(CORE / "_core.pyx", tmp_path / "core.c"), names) == {}


@pytest.mark.parametrize(
    ("directives", "statement", "found"),
    [
        ("boundscheck=False, cdivision=False", "return a % b", {"__Pyx_PyGILState_Ensure", "PyErr_SetString"}),
        ("boundscheck=False, cdivision=True", "return a % b", set()),
        ("boundscheck=False, cdivision=True", "return <long>malloc(a)", {"malloc"}),
    ],
)
def test_what_takes_the_gil_is_found(tmp_path: Path, directives: str, statement: str, found: set[str]) -> None:
    module = tmp_path / "careless.pyx"
    module.write_text(
        f"# cython: {directives}\nfrom libc.stdlib cimport malloc\n"
        f"cdef long section(long a, long b) noexcept nogil:\n    {statement}\n"
        "def call(a, b):\n    return section(a, b)\n"
    )
    used = impure(in_c(module, tmp_path / "careless.c"), sections(module.read_text())).get("section", set())
    assert found <= used
    assert bool(used) == bool(found)
