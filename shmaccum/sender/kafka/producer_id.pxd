cdef class ProducerIds:
    cdef object _backoff
    cdef bint _wanted
    cdef bint _under_way
    cdef long long _attempts
    cdef double _not_before_ms
    cdef object _refused
    cdef object _answer

    cpdef failure(self, double now_ms)

    cpdef double due_ms(self)
