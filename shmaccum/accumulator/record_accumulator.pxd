from shmaccum.accumulator.batch_drainer cimport BatchDrainer
from shmaccum.accumulator.completer cimport BatchCompleter
from shmaccum.accumulator.expirer cimport BatchExpirer
from shmaccum.accumulator.growing_batches cimport GrowingBatches
from shmaccum.accumulator.partition_map cimport PartitionMap
from shmaccum.accumulator.patience cimport BatchReturns, Patience
from shmaccum.accumulator.ready_check cimport ReadyCheck
from shmaccum.accumulator.record_batch cimport RecordBatch
from shmaccum.accumulator.sequences cimport Sequences
from shmaccum.record.format cimport RecordFormat

cdef class RecordAccumulator:
    cdef readonly object slab
    cdef readonly object pool
    cdef readonly PartitionMap map
    cdef readonly RecordFormat format
    cdef readonly object acks
    cdef readonly object appender
    cdef object _columns
    cdef readonly object limits
    cdef readonly Sequences sequences
    cdef readonly Patience patience
    cdef GrowingBatches _growing
    cdef BatchCompleter _completer
    cdef BatchReturns _returns
    cdef ReadyCheck _ready_check
    cdef BatchDrainer _drainer
    cdef BatchExpirer _expirer

    cpdef ready(self, cluster, long long now_ms)
    cpdef dict drain(self, cluster, nodes, Py_ssize_t max_size, long long now_ms)
    cpdef rest_after(self, double began_ms, double ended_ms)
    cpdef bint has_backlog(self, node)
    cpdef complete(self, outcomes)
    cpdef list abort_expired_batches(self, long long now_ms)
