"""What the documents refer to is there: tests, modules, and each other.

`make docs-site` checks the links too, and the anchors. The check here costs nothing and needs nothing installed.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "tools" / "README.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
HOMES = (ROOT, ROOT / "shmaccum")

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_FILE = re.compile(r"`((?:\w+/)+\w+\.(?:py|pyx|pxi|pml|h))`")
"""A path in the project or in the package."""
_TOOL = re.compile(r"python3? -m tools\.(\w+)")
_LINK = re.compile(r"\]\(([\w./-]+\.\w+)(?:#[\w-]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_all_that_a_document_refers_to_is_there(document: Path) -> None:
    text = document.read_text()
    links = [name for name in _LINK.findall(text) if not (document.parent / name).exists()]
    assert links == []
    assert [name for name in _FILE.findall(text) if not any((home / name).exists() for home in HOMES)] == []
    assert [f"{file}::{name}" for file, name in _TEST.findall(text) if name not in functions(ROOT / file)] == []


def test_every_tool_is_called_in_one_way() -> None:
    tools = {path.stem for path in (ROOT / "tools").glob("*.py") if path.stem != "__init__"}
    tools |= {path.parent.name for path in (ROOT / "tools").glob("*/__main__.py")}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "tools" / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(tools)
    callers = [*DOCUMENTS, ROOT / "Makefile", ROOT / ".ci" / "run"]
    assert {name for caller in callers for name in _TOOL.findall(caller.read_text())} <= tools


@cache
def functions(module: Path) -> set[str]:
    return {node.name for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_the_guarantees_are_shown_by_tests() -> None:
    """Else the test above could not fail."""
    assert len(_TEST.findall((ROOT / "docs" / "delivery-guarantees.md").read_text())) > 50


def test_every_transactional_scenario_of_kafkas_tests_has_a_test_or_a_reason() -> None:
    text = (ROOT / "docs" / "inside" / "transactions.md").read_text()
    tables = re.findall(r"^## (\w+): (\d+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert tables[0][0] == "TransactionManagerTest"
    for name, count, table in tables:
        rows = re.findall(r"^\| (`.*`) \| (.*) \|$", table, re.MULTILINE)
        scenarios = re.findall(r"`(\w+)`", " ".join(row for row, _ in rows))
        assert (name, len(scenarios), len(set(scenarios))) == (name, int(count), int(count))
        assert [row for row, here in rows if not _TEST.search(here) and not here.startswith("no counterpart: ")] == []


OUTCOMES = ("passed", "differs: ", "refused on purpose: ")


def test_every_test_of_other_clients_has_an_outcome_and_a_test_of_ours() -> None:
    text = (ROOT / "docs" / "compat.md").read_text()
    tables = re.findall(r"^### ([\w-]+, [\w/.]+): (\d+)\n\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(tables) == 7
    for heading, count, table in tables:
        rows = re.findall(r"^\| (`.*?`) \| (.*?) \| (.*) \|$", table, re.MULTILINE)
        theirs = [name for names, _, _ in rows for name in re.findall(r"`([\w.]+)`", names)]
        assert (heading, len(theirs), len(set(theirs))) == (heading, int(count), int(count))
        for names, outcome, here in rows:
            assert outcome.startswith(OUTCOMES), names
            assert _TEST.search(here), names
