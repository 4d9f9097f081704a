"""What a slab may be called: one rule for the setting ``shmaccum.name`` and for the files in /dev/shm.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

SLAB_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Matches a legal name as a whole. No dot: it ends the name in those of the slab's semaphores and lock file."""
SLAB_NAME_RULE: Final = "1 to 64 ASCII letters, digits, '_' and '-', with a letter or digit first"
"""The same in words."""
