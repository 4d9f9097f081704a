cimport cython
from shmaccum.accumulator.partition_queue cimport PartitionQueue
from shmaccum.accumulator.patience cimport Patience
from shmaccum.accumulator.ready_check cimport ReadyCheck
from shmaccum.accumulator.record_batch cimport RecordBatch
from shmaccum.accumulator.sequences cimport Sequences
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _TAKEN_A_TURN
cdef Py_ssize_t _PARTITION_WORDS
cdef Py_ssize_t _HEAD
cdef Py_ssize_t _QUEUED
cdef Py_ssize_t _IN_FLIGHT
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _COMPRESSED
cdef Py_ssize_t _DRAINED_MS
cdef int _SIZE_SHIFT
cdef int _STORED_SIZE_SHIFT

cdef class BatchDrainer:
    cdef object __weakref__
    cdef object _slab
    cdef object _map
    cdef object _completer
    cdef Sequences _sequences
    cdef ReadyCheck _ready_check
    cdef Patience _patience
    cdef object _returns
    cdef object _growing
    cdef object _words
    cdef SlabMemory _memory
    cdef Py_ssize_t _partitions_at
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef Py_ssize_t _slot_count
    cdef dict _drain_index
    cdef dict _drained

    @cython.locals(words=word[::1], entry=Py_ssize_t, at=Py_ssize_t)
    cpdef bint has_backlog(self, node)

    @cython.locals(words=word[::1], entries=list, batch=RecordBatch)
    cdef list _drain_node(self, node, Py_ssize_t max_size, long long now_ms)

    @cython.locals(
        words=word[::1], ready_check=ReadyCheck, sizes=dict, entry=Py_ssize_t, at=Py_ssize_t,
        head="unsigned long long", size=Py_ssize_t, room=Py_ssize_t, to_grow=Py_ssize_t,
        may_leave=Py_ssize_t, growing=Py_ssize_t, last_growing=Py_ssize_t, first_left=Py_ssize_t, is_growing=bint,
    )
    cdef dict _choose(self, node, list entries, Py_ssize_t max_size, long long now_ms)

    @cython.locals(by_stripe=dict, taken=dict, of_stripe=list)
    cdef list _take_firsts(self, dict chosen, long long now_ms)

    @cython.locals(words=word[::1], by_entry=list, first=PartitionQueue, queue=PartitionQueue, entry=Py_ssize_t, head="unsigned long long")
    cdef _take_turn(self, list entries, dict largest, dict taken, long long now_ms)

    @cython.locals(words=word[::1], header=Py_ssize_t, compressed="unsigned long long")
    cdef Py_ssize_t _stored_size(self, Py_ssize_t slot)
