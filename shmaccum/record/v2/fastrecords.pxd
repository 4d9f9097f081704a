cimport cython

@cython.final
cdef class FastRecords:
    cpdef long long now_ms(self)
    cpdef bytes encode_body(self, bytes key, bytes value)
