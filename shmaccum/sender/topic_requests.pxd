from shmaccum.accumulator.drain.deferral cimport Deferral
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _REQUESTS
cdef unsigned long long _NEVER

cdef class TopicRequests:
    cdef object _slab
    cdef SlabMemory _memory
    cdef object _map
    cdef Deferral _deferral
    cdef object _sequences
    cdef object _transport
    cdef unsigned long long _requests_seen
    cdef set _waiting
    cdef object _cluster
    cdef set _warned

    cpdef bint serve(self, cluster)
