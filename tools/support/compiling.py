"""Compiles C for tools and tests: libraries, and other builds of the core than the shipped one."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def sanitizer_library(name: str) -> str:
    """Return the path of the library of ``asan`` or ``tsan``, which a process has to load first."""
    command = [*_compiler(), f"-print-file-name=lib{name}.so"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(path):
        raise FileNotFoundError(f"{command[0]} has no lib{name}.so: install gcc with its sanitizers")
    return path


def compile_shared(source: Path, result: Path, *options: str) -> None:
    """Compile a file into a shared library, by Zig's compiler if the system has none."""
    command = _compiler()
    if not shutil.which(command[0]):
        command = [sys.executable, "-m", "ziglang", "cc"]
    subprocess.run([*command, "-shared", "-fPIC", *options, source, "-o", result], check=True)


def compile_extension(code: Path, name: str, *options: str) -> ModuleType:
    """Compile the C that Cython has made of a module, beside it, and import the module by a name."""
    module = code.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    compile_shared(code, module, "-O1", "-g0", "-w", f"-I{sysconfig.get_path('include')}", *options)
    return import_extension(module, name)


def import_extension(module: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, module)
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension
