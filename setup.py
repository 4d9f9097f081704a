"""Compiles the core, ``shmaccum._core``: one extension of the included files in ``shmaccum/core/``.

Environment variables:

* ``SHMACCUM_SANITIZE=1`` compiles with AddressSanitizer and UBSan, for processes that have libasan loaded
  (``python -m tools.sanitized``).
* ``SHMACCUM_PURE=1`` leaves the core out, for `tools.wheels`, which compiles it for other machines.

Without a C compiler, Zig's is used, if ``ziglang`` is installed: `tools/packaging/backend.py` asks for it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec

from setuptools import Extension, setup

SANITIZED = ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

ZIG = "-DNDEBUG -fwrapv -fPIC -fno-sanitize=undefined -Wno-unused-command-line-argument"
"""CPython's own flags for Zig, which otherwise adds traps for undefined behaviour that need its runtime."""


def is_set(variable: str) -> bool:
    """Return whether an environment variable is set, not empty and not 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def extensions() -> list[Extension]:
    """Return the core."""
    if is_set("SHMACCUM_PURE") or {"egg_info", "dist_info"} & set(sys.argv):
        return []  # pip asks for the metadata first, which say nothing of the core
    choose_compiler()
    from Cython.Build import cythonize

    flags = SANITIZED if is_set("SHMACCUM_SANITIZE") else []
    core = Extension(
        "shmaccum._core",
        ["shmaccum/core/_core.pyx"],
        include_dirs=["shmaccum/core"],
        depends=["shmaccum/core/atomics.h", "shmaccum/core/crc32c.h"],
        extra_compile_args=flags or ["-O2", "-g0"],
        extra_link_args=flags,
    )
    found: list[Extension] = cythonize([core], build_dir="build/cython")  # its directives stand in its source
    return found


def choose_compiler() -> None:
    """Choose Zig's C compiler if the system has none."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]):
        return
    if find_spec("ziglang") is None:
        sys.exit(
            f"shmaccum's core is compiled, and there is no C compiler ({command[0]}): install one (apt-get install "
            "gcc), or `pip install ziglang`, which has one, and try again"
        )
    compiler = f"{shlex.quote(sys.executable)} -m ziglang cc {ZIG}"
    os.environ |= {"CC": compiler, "LDSHARED": f"{compiler} -shared"}


setup(ext_modules=extensions())
