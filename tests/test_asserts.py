"""Python's ``-O`` removes assertions, so none of the package's has an effect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_EFFECT = {"isinstance", "len"}


@pytest.mark.parametrize("package", ["shmaccum", "pyspark_shmaccum"])
def test_assertions_call_nothing_with_an_effect(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for assertion in ast.walk(ast.parse(path.read_text()))
        if isinstance(assertion, ast.Assert)
        for node in ast.walk(assertion.test)
        if isinstance(node, ast.Await | ast.Yield | ast.NamedExpr)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") not in WITHOUT_EFFECT)
    ]
    assert found == []
