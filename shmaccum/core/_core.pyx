# cython: language_level=3, binding=True, auto_pickle=False, embedsignature=False, autotestdict=False
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The core: the slab's layout, its mapping, its locks, its tables, its pool of slots, and its deques of batches.

No function here waits: `shmaccum.shm.locks` waits for a lock, `shmaccum.accumulator.buffer_pool` for memory,
`shmaccum.accumulator.append` for both.

One extension of included files, a file for each concern, in the order in which they need each other.
``cdivision`` and ``boundscheck`` are off because a check would take the GIL to raise its error, under a lock of the
slab. So each word of the slab is loaded once, checked, then used.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno, PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport EINTR, errno
from libc.math cimport ldexp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec
from posix.types cimport off_t

include "layout.pxi"
include "segment.pxi"
include "words.pxi"
include "lock.pxi"
include "wait.pxi"
include "pool.pxi"
include "queue.pxi"
include "repair.pxi"
include "rings.pxi"
include "futures.pxi"
include "reports.pxi"
include "results.pxi"
include "statistics.pxi"
include "checksum.pxi"
include "append.pxi"
include "send.pxi"
include "columns.pxi"
include "drain.pxi"
include "tables.pxi"
include "ready.pxi"
include "batch.pxi"
include "sequences.pxi"
include "complete.pxi"
include "request.pxi"
