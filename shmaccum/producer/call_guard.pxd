cimport cython
@cython.final
cdef class CallGuard:
    cdef public bint closed
    cdef object _accumulator
    cdef object _slab
