"""Modules of the package for tools that run before it is installed.

Without its core, the package cannot be imported. So these modules are loaded from their files; they import nothing but
the standard library.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shmaccum import procfs as procfs
    from shmaccum.cli import java as java


def _load(name: str) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / f"{name.replace('.', '/')}.py"
    spec = importlib.util.spec_from_file_location(f"{__name__}.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    java = _load("shmaccum.cli.java")
    procfs = _load("shmaccum.procfs")
