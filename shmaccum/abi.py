"""The version of the shared memory's layout: which programs can share a slab.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

from typing import Final

ABI_VERSION: Final = 6
"""Raised by every change that moves or re-interprets a word of the slab. Package versions of one ABI share slabs."""
