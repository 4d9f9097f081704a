cimport cython
from shmaccum.accumulator.futures cimport ProduceRequestResult
from shmaccum.accumulator.completion cimport RingReader
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _GENERATION

cdef class Acknowledgements:
    cdef object __weakref__
    cdef public object while_waiting
    cdef object _joining
    cdef object _slab
    cdef object _words
    cdef SlabMemory _memory
    cdef public dict _pending
    cdef dict _flushes
    cdef object _reading
    cdef object _calling
    cdef object _contributor_at
    cdef object _contributor_bit
    cdef object _pid
    cdef RingReader _ring
    cdef object _to_call
    cdef readonly Py_ssize_t process_at

    @cython.locals(batch="unsigned long long")
    cpdef ProduceRequestResult contribute(self, topic_partition, Py_ssize_t slot, Py_ssize_t header)
    cpdef poll(self)
