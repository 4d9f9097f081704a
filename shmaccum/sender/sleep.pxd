cimport cython

cdef Py_ssize_t _RAN
cdef int _SLEEP_BITS
cdef double _MAX_SLEEP_MS

@cython.final
cdef class Sleep:
    cdef object _slab
    cdef object _words
    cdef long long _idle_ms
    cdef object _idle_since_ms
    cdef long long _used_until_ms
    cdef long long _now_ms
    cdef double _longest_ms

    cpdef begin_pass(self, long long now_ms)

    cpdef at_most(self, double longest_ms)

    @cython.locals(longest_ms=double)
    cpdef double begin(self, bint has_batches) except -1

    @cython.locals(now_ms="long long")
    cdef double _until_check_ms(self, bint has_batches) except -1
