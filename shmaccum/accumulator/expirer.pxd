from shmaccum.accumulator.completer cimport BatchCompleter
from shmaccum.accumulator.patience cimport BatchReturns, Patience

cdef class BatchExpirer:
    cdef object _slab
    cdef object _words
    cdef object _map
    cdef BatchCompleter _completer
    cdef Patience _patience
    cdef BatchReturns _returns
    cdef object _limits
    cdef readonly double next_expiry_ms

    cpdef list abort_expired_batches(self, long long now_ms)
