cimport cython
from shmaccum.accumulator.drain.completer cimport BatchCompleter
from shmaccum.accumulator.drain.open_batch_throttle cimport OpenBatchThrottle
from shmaccum.accumulator.state.partition_map cimport PartitionMap
from shmaccum.accumulator.drain.deferral cimport BatchReturns, Deferral
from shmaccum.accumulator.drain.ready_check cimport ReadyCheck
from shmaccum.accumulator.state.record_batch cimport RecordBatch, batch_in
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.shm.histograms cimport count as count_in_histogram
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _PARTITION_WORDS
cdef Py_ssize_t _KEY
cdef int _LANE_SHIFT
cdef Py_ssize_t _HEAD
cdef Py_ssize_t _QUEUED
cdef Py_ssize_t _IN_FLIGHT
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _COMPRESSED
cdef Py_ssize_t _DRAINED_MS
cdef Py_ssize_t _ATTEMPTS
cdef Py_ssize_t _OPENED_US
cdef int _SIZE_SHIFT
cdef int _STORED_SIZE_SHIFT
cdef int _ATTEMPTS_SHIFT

@cython.final
cdef class BatchDrainer:
    cdef object __weakref__
    cdef object _slab
    cdef PartitionMap _map
    cdef BatchCompleter _completer
    cdef Sequences _sequences
    cdef ReadyCheck _ready_check
    cdef Deferral _deferral
    cdef BatchReturns _returns
    cdef OpenBatchThrottle _throttle
    cdef object _words
    cdef SlabMemory _memory
    cdef Py_ssize_t _partitions_at
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef unsigned long long _slot_count
    cdef Py_ssize_t _queue_times_at
    cdef dict _drain_index
    cdef dict _drained
    cdef bint _others_left

    cpdef dict drain(self, cluster, nodes, Py_ssize_t max_size, long long now_ms)

    @cython.locals(words=word[::1], batch=RecordBatch)
    cpdef bint has_backlog(self, node)

    @cython.locals(
        words=word[::1], entries=list, sizes=list, chosen=list, drained=list, batch=RecordBatch,
        now_us="unsigned long long", opened_us="unsigned long long",
    )
    cdef list _drain_node(self, node, Py_ssize_t max_size, long long now_ms)

    @cython.locals(
        words=word[::1], ready_check=ReadyCheck, chosen=list, entry=Py_ssize_t, at=Py_ssize_t, index=Py_ssize_t,
        head="unsigned long long", size=Py_ssize_t, room=Py_ssize_t, to_grow=Py_ssize_t, count=Py_ssize_t,
        may_leave=Py_ssize_t, growing=Py_ssize_t, last_growing=Py_ssize_t, first_left=Py_ssize_t, is_growing=bint,
        lane="unsigned long long", others_left=bint,
    )
    cdef list _choose(self, node_id, list entries, list sizes, Py_ssize_t max_size, long long now_ms)

    cdef list _take_firsts(self, list chosen, list sizes, long long now_ms)

    @cython.locals(words=word[::1], entry=Py_ssize_t)
    cdef _take_turn(self, list indexes, list chosen, list sizes, dict taken, long long now_ms)

    @cython.locals(memory=SlabMemory, header=Py_ssize_t, compressed="unsigned long long")
    cdef Py_ssize_t _stored_size(self, unsigned long long slot)
