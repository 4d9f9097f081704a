cimport cython
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _GENERATION

@cython.final
cdef class TopicEntry:
    cdef readonly Py_ssize_t entry
    cdef readonly str name
    cdef public object queues
    cdef object _words
    cdef Py_ssize_t _at

@cython.final
cdef class PartitionMap:
    cdef dict __dict__
    cdef object __weakref__
    cdef SlabMemory _memory
    cdef readonly unsigned long long generation
    cdef readonly dict topics
    cdef readonly list by_entry
    cdef readonly dict of_lanes
    cdef list _topics_by_entry

