"""The slab's ABI version and name rule, shared by all package versions.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

ABI_VERSION: Final = 14
"""Every change that moves or reinterprets a word of the slab raises it. Package versions of one ABI share slabs."""


MAX_LANES: Final = 2000
"""Most transactions that a slab can have room for."""
SLAB_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Matches a whole legal name. No dots: in the names of semaphores and the lock file, a dot ends the slab's name."""
SLAB_NAME_RULE: Final = "1 to 64 ASCII letters, digits, '_' and '-', with a letter or digit first"
"""The same in words."""
