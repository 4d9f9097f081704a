"""Which interpreters and machines the package runs on: what it needs of them, and the refusal where they lack it.

* **CPython.** The sender and the core use what other implementations do not have.
* **The GIL.** It guards the state that the threads of a process share: docs/inside/core.md.
* **The order of loads and stores.** Processes meet in the slab without a lock. x86-64 keeps the order that the protocol
  needs; other machines are asked for it: docs/inside/core.md.

This module is at the bottom: beside the errors, it imports nothing of the package.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

from shmaccum.errors import UnsupportedPlatformError

_ORDERED: Final = "x86_64"
"""The machine whose every load is an acquire, and whose every store is a release."""


def has_gil() -> bool:
    """Return whether threads of this interpreter take turns."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # before Python 3.13, there is no other way
    return is_enabled is None or bool(is_enabled())


def check_gil() -> None:
    """Check that threads take turns; called once, since no later import can switch the GIL off.

    Raises:
        UnsupportedPlatformError: they do not.
    """
    if not has_gil():
        raise UnsupportedPlatformError(
            f"shmaccum needs the GIL, and this Python {sys.version.split()[0]} runs without it: start it with "
            "PYTHON_GIL=1 or -X gil=1, or use the default build of CPython"
        )


def check_core() -> None:
    """Check that the core can be imported: without it there is no package.

    Raises:
        UnsupportedPlatformError: it is missing, or does not fit this interpreter, or this is a subinterpreter.
    """
    if sys.implementation.name != "cpython":  # PyPy's pip compiles the core, too, but then no sender starts
        raise UnsupportedPlatformError(f"shmaccum needs CPython, and this is {sys.implementation.name}: use CPython")
    try:
        import_module("shmaccum._core")
    except ImportError as error:
        if "interpreter" in str(error):  # of Cython, or of CPython where interpreters have a GIL each
            raise UnsupportedPlatformError(
                f"shmaccum runs in one interpreter of a process, and this is another one ({error}): import it in the "
                "main interpreter alone, not in subinterpreters; with mod_wsgi, set WSGIApplicationGroup %{GLOBAL}"
            ) from error
        if not os.path.exists(__file__):
            raise UnsupportedPlatformError(
                "shmaccum's compiled core cannot be imported from a zip archive: unpack it, or build the archive by "
                "pex or shiv, which unpack theirs"
            ) from error
        ours = f"_core{EXTENSION_SUFFIXES[0]}"
        there = [name for name in os.listdir(os.path.dirname(__file__)) if name[:6] + name[-3:] == "_core..so"]
        state = "missing"
        if not isinstance(error, ModuleNotFoundError):
            state = "there, but cannot be loaded"
        elif there and ours not in there:
            state = f"made for another Python: it is {', '.join(there)}, and this one loads {ours}"
        raise UnsupportedPlatformError(
            f"shmaccum's compiled core is {state} ({error}): install shmaccum by this Python's pip, which compiles it; "
            "in a source tree, `pip install -e .` does"
        ) from error


def keeps_order() -> bool:
    """Return whether this machine orders loads and stores as the protocol needs, also those of Python code."""
    return os.uname().machine == _ORDERED
