"""Which form of the package runs: compiled, or, from an editable install, plain Python over the compiled core.

setup.py compiles all typed modules or none. If `COMPILED` is set, a missing kernel is an error: plain and compiled
modules never mix.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

COMPILED: Final = find_spec("shmaccum._cyutility") is not None
"""Whether the package is compiled: all compiled modules share this one, which holds Cython's own code."""
COMPILED_FORM: Final = "compiled"
PLAIN_FORM: Final = "plain Python"
FORM: Final = COMPILED_FORM if COMPILED else PLAIN_FORM
"""The form's name, for messages."""
