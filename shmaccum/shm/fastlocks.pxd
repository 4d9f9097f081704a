cimport cython

@cython.final
cdef class FastMutex:
    cdef object _gate
    cdef unsigned long _owner
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _waiting
    cdef bint take(self) noexcept
    cpdef bint acquire(self, bint blocking=*, double timeout=*) except -1
    cpdef int release(self) except -1
    cpdef bint _is_owned(self)
