cimport cython
from shmaccum.accumulator.patience cimport Patience
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _REQUESTS
cdef Py_ssize_t _GENERATION

cdef class TopicRequests:
    cdef object _slab
    cdef SlabMemory _memory
    cdef object _map
    cdef Patience _patience
    cdef object _transport
    cdef long long _requests_seen
    cdef long long _generation_seen
    cdef bint _is_asked
    cdef object _cluster

    @cython.locals(words=word[::1], requests="long long", generation="long long", is_seen=bint, stored=bint)
    cpdef bint serve(self, cluster)

    cdef bint _store(self, cluster, list requested)

    cdef bint _store_topic(self, name, partition_count, error)
