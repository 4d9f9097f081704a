"""What processes of different package versions must agree on to share a slab: its layout's version and its name.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

ABI_VERSION: Final = 6
"""Raised by every change that moves or re-interprets a word of the slab. Package versions of one ABI share slabs."""


SLAB_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Matches a legal name as a whole. No dot: it ends the name in those of the slab's semaphores and lock file."""
SLAB_NAME_RULE: Final = "1 to 64 ASCII letters, digits, '_' and '-', with a letter or digit first"
"""The same in words."""
