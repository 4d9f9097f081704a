"""The package's version, and what its versions share: the slab's ABI version and the rule for names.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
"""Of the package."""
ABI_VERSION: Final = 19
"""Every change that moves or reinterprets a word of the slab raises it. Package versions of one ABI share slabs."""


MAX_LANES: Final = 2000
"""Most transactions that a slab can have room for."""
SLAB_NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Matches a legal name without a shard. No dots: in the names of semaphores and the lock file, a dot ends the name."""
SHARD_PATTERN: Final = r"@(?:0|[1-9][0-9]?)"
"""Follows the name in the name of a shard, ``NAME@0`` and so on: one of the slabs that share a host's producers."""
MAX_SHARDS: Final = 64
"""Most slabs that producers with the same settings can be divided among."""
SLAB_NAME_RULE: Final = "1 to 64 ASCII letters, digits, '_' and '-', with a letter or digit first"
"""The same in words."""


def shard_name(name: str, number: int) -> str:
    """Return the name of one of the slabs that share a name."""
    return f"{name}@{number}"


def shard_of(slab: str) -> tuple[str, int | None]:
    """Return the name that a slab shares with others, and its number; its own name and None if it is no shard."""
    name, at, number = slab.partition("@")
    return name, int(number) if at else None
