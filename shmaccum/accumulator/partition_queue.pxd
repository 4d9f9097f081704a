cimport cython
from shmaccum.shm.locks cimport SlabLock
from shmaccum.shm.memory cimport SlabMemory, word


cdef Py_ssize_t _SEALING

cdef class PartitionQueue:
    cdef readonly Py_ssize_t entry
    cdef readonly object topic_partition
    cdef readonly SlabLock lock
    cdef readonly Py_ssize_t head_at
    cdef readonly Py_ssize_t open_at
    cdef readonly Py_ssize_t queued_at
    cdef SlabMemory _memory
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef object _slab
    cdef object _words
    cdef object _geometry
    cdef Py_ssize_t _at

    @cython.locals(words=word[::1], head=Py_ssize_t, sealing_at=Py_ssize_t)
    cpdef bint has_full(self)
