cdef class ResponseCoalescing:
    cdef readonly double next_ms

    cpdef nap(self, double timeout_ms)

    cpdef learn(self, Py_ssize_t answered, Py_ssize_t under_way)
