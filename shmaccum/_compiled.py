"""Which form of the package runs: compiled, or the same source as plain Python.

setup.py compiles all typed modules or none. A module that needs a kernel imports it where `COMPILED` is set and must
find it: a missing kernel is an error, and never a reason to mix plain modules with compiled ones.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

COMPILED: Final = find_spec("shmaccum._cyutility") is not None
"""Whether the package is compiled: then Cython's own code is in a module that all compiled ones share."""
COMPILED_FORM: Final = "compiled"
PLAIN_FORM: Final = "plain Python"
FORM: Final = COMPILED_FORM if COMPILED else PLAIN_FORM
"""The same in words, for people."""
