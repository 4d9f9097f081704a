from shmaccum.accumulator.drain.completer cimport BatchCompleter
from shmaccum.accumulator.drain.deferral cimport BatchReturns, Deferral

cdef class BatchExpirer:
    cdef object _slab
    cdef object _words
    cdef object _map
    cdef BatchCompleter _completer
    cdef Deferral _deferral
    cdef BatchReturns _returns
    cdef object _limits
    cdef readonly double next_expiry_ms

    cpdef list abort_expired_batches(self, long long now_ms)
