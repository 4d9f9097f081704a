"""The floors of docs/architecture.md: a module imports only from its own floor and those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "shmaccum"

FLOORS = (
    {"errors", "__version__"},
    {"_core", "_platform", "abi", "backoff", "cluster", "later", "procfs", "regularfile"},
    {"config"},
    {"kafka"},
    {"shm"},
    {"record", "metrics"},
    {"pool"},
    {"accumulator"},
    {"sender"},
    {"transactions"},
    {"producer"},
    {"compat", "logging"},
    {"spark"},
    {"monitoring"},
    {"opentelemetry"},
    {"cli", "__main__"},
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "shmaccum":
                names = [f"shmaccum.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.startswith("shmaccum."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    floor = FLOOR_OF[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    up = [name for name in imported(path) if FLOOR_OF.get(name.split(".")[1], len(FLOORS)) > floor]
    assert not up
