"""The floors of docs/architecture.md: a module imports only from its own floor and those below it, and in no circle."""

from __future__ import annotations

import ast

import pytest

from tools.layout import PACKAGE, ROOT, circles_of, imported, name_of, room_of

FLOORS = (
    {"errors", "__version__"},
    {"_core", "_platform", "abi", "cluster", "later", "procfs"},
    {"config"},
    {"kafka"},
    {"shm"},
    {"record"},
    {"observe"},
    {"accumulator"},
    {"sender"},
    {"transactions"},
    {"producer"},
    {"compat", "logging"},
    {"spark"},
    {"opentelemetry"},
    {"cli", "__main__"},
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}

MODULES = {name_of(path): path for path in (ROOT / PACKAGE).rglob("*.py")}


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return what each module imports. To read them all takes a second, which collecting tests need not wait for."""
    return {name: set(imported(path)) - {name} for name, path in MODULES.items()}


def test_imports_point_down(imports: dict[str, set[str]]) -> None:
    for name in MODULES.keys() - {PACKAGE}:
        floor = FLOOR_OF[room_of(name)]
        assert [below for below in imports[name] if FLOOR_OF.get(room_of(below), len(FLOORS)) > floor] == [], name


def test_no_modules_import_each_other(imports: dict[str, set[str]]) -> None:
    assert len(imports) > 150
    assert circles_of(imports) == []


def test_a_circle_is_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}, "g": set[str]()}
    assert circles_of(arrows) == [["a", "b", "c"], ["e", "f"]]


def test_imports_are_found_wherever_they_are(imports: dict[str, set[str]]) -> None:
    """Within functions, too, and of names of the package itself; but not those for type checkers."""
    process = imports["shmaccum.sender.process"]
    assert {"shmaccum.sender.kafka.kafka_transport", "shmaccum.abi", "shmaccum.sender.isolation"} <= process
    assert "shmaccum.sender.transport" not in process


# --- assertions -----------------------------------------------------------------------------------------

WITHOUT_EFFECT = {"isinstance", "len"}


def test_assertions_call_nothing_with_an_effect() -> None:
    """Python's ``-O`` removes assertions, so none of the package's has an effect."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in (PACKAGE, "pyspark_shmaccum")
        for path in sorted((ROOT / package).rglob("*.py"))
        for assertion in ast.walk(ast.parse(path.read_text()))
        if isinstance(assertion, ast.Assert)
        for node in ast.walk(assertion.test)
        if isinstance(node, ast.Await | ast.Yield | ast.NamedExpr)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") not in WITHOUT_EFFECT)
    ]
    assert found == []
