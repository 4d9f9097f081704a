# cython: language_level=3, binding=True, auto_pickle=False, embedsignature=False
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The core: the slab's layout, its mapping, its locks, and its pool of slots.

No function here waits: `shmaccum.shm.locks` waits for a lock, `shmaccum.pool` for memory. `shmaccum/shm/layout/` has
the same places of words for Python code.

One extension of included files, a file for each concern, in the order in which they need each other.
``cdivision`` and ``boundscheck`` are off because a check would take the GIL to raise its error, under a lock of the
slab. So each word of the slab is loaded once, checked, then used.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from posix.types cimport off_t

include "layout.pxi"
include "segment.pxi"
include "lock.pxi"
include "pool.pxi"
