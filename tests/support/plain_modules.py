"""The plain form of modules, beside the compiled one in the same process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

import shmaccum


class _SourceOnly:
    """Finds the package's modules as Python source, never as libraries; all others as usual."""

    def __init__(self) -> None:
        self._others = list(sys.meta_path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _has_two_forms(name):
            home = path[0] if path else str(Path(shmaccum.__file__).parents[1])
            return FileFinder(home, (SourceFileLoader, [".py"])).find_spec(name)
        found = (finder.find_spec(name, path, target) for finder in self._others)
        return next((spec for spec in found if spec is not None), None)


def _has_two_forms(name: str) -> bool:
    """Return whether a module is the package's, but not its core, which is compiled always."""
    return name.partition(".")[0] == "shmaccum" and name != "shmaccum._core"


def plain(*names: str) -> list[ModuleType]:
    """Return modules of the package as plain Python, from the source that lies beside the libraries.

    They are apart from those that `import` finds, classes included. What they import later, inside a function, is not.
    """
    finders = sys.meta_path[:]
    imported = {name: module for name, module in sys.modules.items() if _has_two_forms(name)}
    for name in imported:
        del sys.modules[name]
    try:
        sys.meta_path[:] = [_SourceOnly()]
        return [importlib.import_module(name) for name in names]
    finally:
        sys.meta_path[:] = finders
        for name in list(filter(_has_two_forms, sys.modules)):
            del sys.modules[name]
        sys.modules.update(imported)
