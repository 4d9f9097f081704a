"""Which form runs: plain Python, or the same compiled."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from runs import ROOT, run_python

import shmaccum
from shmaccum.shm.layout import Geometry
from shmaccum.shm.memory import SlabMemory

MEANT = os.environ.get("SHMACCUM_COMPILED") == "1"


def test_the_form_that_runs_is_the_one_that_is_meant() -> None:
    assert shmaccum.compiled == MEANT


def test_all_modules_are_compiled_or_none() -> None:
    typed = [pxd.relative_to(ROOT).with_suffix("") for pxd in (ROOT / "shmaccum").rglob("*.pxd")]
    specs = {".".join(module.parts): find_spec(".".join(module.parts)) for module in typed}
    compiled = {name for name, spec in specs.items() if spec is not None and str(spec.origin).endswith(".so")}
    assert compiled == (set(specs) if MEANT else set())


def test_no_index_of_compiled_modules_counts_from_the_end() -> None:
    typed = [module for pxd in (ROOT / "shmaccum").rglob("*.pxd") if (module := pxd.with_suffix(".py")).exists()]
    assert typed
    assert [
        f"{module}:{node.lineno}"
        for module in typed
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.UnaryOp)
    ] == []


def test_variables_read_from_words_are_unsigned() -> None:
    """It would be less than nothing where a bit has flipped."""
    signed = []
    for pxd in (ROOT / "shmaccum").rglob("*.pxd"):
        module = pxd.with_suffix(".py")
        if not module.exists():
            continue
        types = types_of_locals(pxd.read_text())
        for function in ast.walk(ast.parse(module.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name in types:
                signed += [
                    f"{module.name}:{function.name}: {name}"
                    for name in names_of_words(function)
                    if types[function.name].get(name, "unsigned") in ("long long", "Py_ssize_t", "int")
                ]
    assert signed == []


def types_of_locals(pxd: str) -> dict[str, dict[str, str]]:
    """Return the types that a .pxd file gives the locals of functions, by function and name."""
    declared = re.findall(r"@cython\.locals\(([^)]*)\)\s*(?:cpdef|cdef)[^(]*?(?:\([^)]*\) )?(\w+)\(", pxd)
    return {
        function: {name: kind.strip('"') for name, kind in re.findall(r"(\w+)=(\"[^\"]*\"|\w+)", text)}
        for text, function in declared
    }


def names_of_words(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the variables that a function assigns words of the slab to, as they are."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Subscript):
                        held = value.value
                        if "words" in (getattr(held, "id", ""), getattr(held, "attr", "")):
                            yield name.id


@pytest.mark.parametrize(
    ("kernel", "user", "before"),
    [
        ("shmaccum.shm.fastwait", "shmaccum.shm.clockwait", "shmaccum.shm.memory"),
        ("shmaccum.record.v2.fastheader", "shmaccum.record.v2.records", "shmaccum.shm.memory"),
        ("shmaccum.sender.kafka.fastcalls", "shmaccum.sender.kafka.timing", "shmaccum.shm.memory"),
        ("shmaccum.sender.kafka.fastcalls", "shmaccum.sender.kafka.channel", "shmaccum.shm.memory"),
        ("shmaccum.sender.kafka.fastheads", "shmaccum.sender.kafka.produce_request", "shmaccum.sender.kafka.channel"),
    ],
)
def test_a_compiled_package_that_lacks_a_kernel_is_an_error(kernel: str, user: str, before: str) -> None:
    """``before`` is imported first, which in plain Python has no kernel of its own."""
    code = (
        f"import sys, {before}; from shmaccum import _compiled; _compiled.COMPILED = True;"
        f"sys.modules[{kernel!r}] = None; import {user}"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(shmaccum.__file__).parents[1])}
    done = run_python("-P", "-c", code, env=environment)
    assert f"ModuleNotFoundError: import of {kernel} halted" in done.stderr


def test_the_source_tree_holds_nothing_compiled_but_the_core() -> None:
    assert {path.name.partition(".")[0] for path in (ROOT / "shmaccum").rglob("*.so")} == {"_core"}


def test_words_that_are_not_there_any_more_are_an_index_error() -> None:
    words = memoryview(bytearray(64)).cast("Q")
    held = SlabMemory(words, Geometry(64, 1))
    held.close()
    words.release()  # a view that is still held would keep it from that

    with pytest.raises(AttributeError if MEANT else IndexError):
        held.words[0]  # compiled, only compiled code has words
