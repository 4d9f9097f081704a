cimport cython
@cython.final
cdef class FastCalls:
    cpdef double monotonic_ms(self)
    cpdef Py_ssize_t send(self, int descriptor, list buffers) except -1
    cpdef bytes receive(self, int descriptor)
