cimport cython
from shmaccum.accumulator.state.completion_ring cimport Outcome, RingReader
from shmaccum.accumulator.append.futures cimport Part, ProduceRequestResult
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _GENERATION

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
    cdef object _due
    cdef readonly set flushes
    cdef public object lost
    cdef object _reading
    cdef object _callbacks
    cdef object _pid
    cdef RingReader _ring
    cdef readonly Py_ssize_t process_at
    cdef readonly Py_ssize_t sizes_at

    cpdef poll(self)

    @cython.locals(ring=RingReader, outcome=Outcome, result=ProduceRequestResult)
    cpdef read(self)

    cdef _settle(self, ProduceRequestResult result, Outcome outcome)

    cpdef call_back(self, callback, future)
