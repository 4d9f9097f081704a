cimport cython
from shmaccum.accumulator.drain.batch_drainer cimport BatchDrainer
from shmaccum.accumulator.drain.completer cimport BatchCompleter
from shmaccum.accumulator.drain.deferral cimport BatchReturns, Deferral
from shmaccum.accumulator.drain.open_batch_throttle cimport OpenBatchThrottle
from shmaccum.accumulator.drain.ready_check cimport ReadyCheck
from shmaccum.accumulator.drain.sequence_doubt cimport SequenceDoubt
from shmaccum.accumulator.drain.sequences cimport Sequences

@cython.final
cdef class SenderAccumulator:
    cdef readonly object state
    cdef readonly object lanes
    cdef object _slab
    cdef object _lanes_seen
    cdef readonly object limits
    cdef readonly Sequences sequences
    cdef readonly SequenceDoubt doubt
    cdef readonly Deferral deferral
    cdef BatchReturns _returns
    cdef OpenBatchThrottle _throttle
    cdef BatchCompleter _completer
    cdef ReadyCheck _ready_check
    cdef BatchDrainer _drainer
    cdef object _expirer

    cpdef ready(self, cluster, long long now_ms)
    cpdef dict drain(self, cluster, nodes, Py_ssize_t max_size, long long now_ms)
    cpdef rest_after(self, double began_ms, double ended_ms)
    cpdef bint has_backlog(self, node)
    cpdef complete(self, outcomes)
    cpdef list abort_expired_batches(self, long long now_ms)
