"""docs/compat.md: each test of the other projects has one row, an outcome, and a test of ours that is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("passed", "differs: ", "refused on purpose: ")


@cache
def functions(module: Path) -> set[str]:
    return {node.name for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_test_of_theirs_has_an_outcome_and_a_test_of_ours() -> None:
    text = (ROOT / "docs" / "compat.md").read_text()
    tables = re.findall(r"^### ([\w-]+, [\w/.]+): (\d+)\n\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(tables) == 7
    for heading, count, table in tables:
        rows = re.findall(r"^\| (`.*?`) \| (.*?) \| (.*) \|$", table, re.MULTILINE)
        theirs = [name for names, _, _ in rows for name in re.findall(r"`([\w.]+)`", names)]
        assert (heading, len(theirs), len(set(theirs))) == (heading, int(count), int(count))
        for names, outcome, here in rows:
            assert outcome.startswith(OUTCOMES), names
            ours = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", here)
            assert ours, names
            assert [f"{file}::{name}" for file, name in ours if name not in functions(ROOT / file)] == []
