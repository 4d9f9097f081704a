cimport cython
from libc.stdint cimport int32_t

@cython.final
cdef class FastHeads:
    cpdef bytes batch(self, bytes before, int32_t partition, Py_ssize_t size, bint is_flexible)
