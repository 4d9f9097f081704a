cimport cython
from shmaccum.accumulator.append.pending_batches cimport PendingBatches
from shmaccum.accumulator.append.record_appender cimport RecordAppender
from shmaccum.accumulator.state.partition_queue cimport PartitionQueue

@cython.final
@cython.final
cdef class RecordAccumulator:
    cdef object __weakref__
    cdef readonly object state
    cdef readonly PendingBatches pending
    cdef readonly object compressor
    cdef readonly RecordAppender records
    cdef readonly object _batches
    cdef object _columns
    cdef object _look
    cdef object _failure
    cdef bint _is_closed
    cdef bint _is_unusual

    @cython.locals(result=tuple)
    cpdef tuple append(
        self, PartitionQueue queue, long long timestamp, bytes body, callback, max_block_ms, route=*,
        unsigned long long sizes=*,
    )
