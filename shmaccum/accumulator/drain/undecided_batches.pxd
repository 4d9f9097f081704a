cimport cython
from shmaccum.accumulator.state.record_batch cimport RecordBatch

@cython.final
cdef class UndecidedBatches:
    cdef readonly Py_ssize_t count
    cdef dict _of

    cpdef clear(self)

    cpdef Py_ssize_t number_of(self, Py_ssize_t entry) except -1
