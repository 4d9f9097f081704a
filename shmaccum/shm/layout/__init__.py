"""The slab's memory layout, for Python code: the places of its regions, and the numbers of their words.

The layout is described in ``core/layout.pxi``; a test compares both. A word's *index* in the segment (byte offset / 8)
is that of its entry plus its number.
"""

from shmaccum.abi import ABI_VERSION as ABI_VERSION
from shmaccum.shm.layout.fields import *  # noqa: F403
from shmaccum.shm.layout.geometry import *  # noqa: F403
from shmaccum.shm.layout.statistics import *  # noqa: F403
from shmaccum.shm.layout.words import *  # noqa: F403
