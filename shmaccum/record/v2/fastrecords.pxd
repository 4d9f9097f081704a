cimport cython
from shmaccum.shm.memory cimport SlabMemory

@cython.final
cdef class FastRecords:
    cdef SlabMemory _memory
    cpdef long long now_ms(self)
    cpdef bytes encode_body(self, bytes key, bytes value)
    cpdef Py_ssize_t write(
        self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t offset_delta, long long timestamp_delta, bytes body
    ) except -1
