cimport cython

@cython.final
cdef class Deferral:
    cdef readonly dict _until_ms
    cpdef run(self, lock, work)

@cython.final
cdef class BatchReturns:
    cdef object _deques
    cdef object _map
    cdef Deferral _deferral
    cdef dict _waiting
    cpdef retry(self)
