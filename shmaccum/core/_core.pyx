# cython: language_level=3, binding=True, auto_pickle=False, embedsignature=False
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The core: the slab's layout, its mapping, and a lock.

`shmaccum.shm.locks` waits for the lock. `shmaccum/shm/layout/` has the same places of words for Python code.

One extension of included files, a file for each concern, in the order in which they need each other.
``cdivision`` and ``boundscheck`` are off because a check would take the GIL to raise its error, under a lock of the
slab. So each word of the slab is loaded once, checked, then used.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport uint64_t
from posix.types cimport off_t

include "layout.pxi"
include "segment.pxi"
include "lock.pxi"
