cimport cython
from shmaccum.accumulator.append.callbacks cimport Callbacks
from shmaccum.accumulator.state.completion_ring cimport Outcome, RingReader
from shmaccum.accumulator.append.futures cimport Part, ProduceRequestResult
from shmaccum.accumulator.state.partition_queue cimport PartitionQueue
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _GENERATION
cdef unsigned long long _ALL_BITS

@cython.final
cdef class PendingBatches:
    cdef object __weakref__
    cdef public object while_waiting
    cdef readonly object idempotent
    cdef object _map
    cdef object _joining
    cdef object _slab
    cdef object _incidents
    cdef object _weakly
    cdef SlabMemory _memory
    cdef public dict _results
    cdef readonly object contributions
    cdef readonly object due
    cdef readonly set flushes
    cdef public object lost
    cdef object _reading
    cdef Callbacks _callbacks
    cdef Py_ssize_t _contributor_at
    cdef unsigned long long _contributor_bit
    cdef object _pid
    cdef RingReader _ring
    cdef readonly Py_ssize_t process_at
    cdef readonly Py_ssize_t sizes_at

    cpdef poll(self)

    @cython.locals(ring=RingReader, outcome=Outcome, result=ProduceRequestResult)
    cpdef read(self)

    cdef _settle(self, ProduceRequestResult result, Outcome outcome)

    cpdef call_back(self, callback, future)
