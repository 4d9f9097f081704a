cimport cython
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _RAN
cdef int _SLEEP_BITS
cdef double _MAX_SLEEP_MS

cdef class Sleep:
    cdef SlabMemory _memory
    cdef object _idleness
    cdef long long _now_ms
    cdef double _longest_ms

    cpdef begin_pass(self, long long now_ms)

    cpdef at_most(self, double longest_ms)

    @cython.locals(longest_ms=double)
    cpdef double begin(self, bint has_batches) except -1
