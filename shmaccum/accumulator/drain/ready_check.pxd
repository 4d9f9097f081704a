cimport cython
from shmaccum.accumulator.drain.open_batch_throttle cimport OpenBatchThrottle
from shmaccum.accumulator.state.partition_map cimport PartitionMap
from shmaccum.accumulator.drain.deferral cimport BatchReturns, Deferral
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _MANY
cdef Py_ssize_t _PARTITION_COUNT
cdef Py_ssize_t _PARTITION_WORDS
cdef Py_ssize_t _PROCESS_WORDS
cdef Py_ssize_t _LEADER
cdef Py_ssize_t _KEY
cdef int _LANE_SHIFT
cdef Py_ssize_t _LANE_WORDS
cdef Py_ssize_t _LANE_PRODUCER_ID
cdef Py_ssize_t _LANE_ERROR
cdef Py_ssize_t _HEAD
cdef Py_ssize_t _QUEUED
cdef Py_ssize_t _HELD
cdef Py_ssize_t _MUTED
cdef Py_ssize_t _IN_FLIGHT
cdef Py_ssize_t _SLOT_STATE
cdef Py_ssize_t _ATTEMPTS
cdef Py_ssize_t _SEALING
cdef Py_ssize_t _LINGER
cdef int _LINGER_SHIFT
cdef Py_ssize_t _PARTITION
cdef int _ATTEMPTS_SHIFT
cdef unsigned long long _STATE_BITS
cdef long long _TIME_BITS
cdef long long _SEALING_TIMEOUT_MS
cdef unsigned long long _OPEN
cdef long long _AHEAD_MS

cdef class ReadyCheck:
    cdef public bint closed
    cdef object _slab
    cdef object _pool
    cdef PartitionMap _map
    cdef Sequences _sequences
    cdef Deferral _deferral
    cdef BatchReturns _returns
    cdef OpenBatchThrottle _throttle
    cdef public object backoff
    cdef unsigned long long _max_in_flight
    cdef object _words
    cdef SlabMemory _memory
    cdef Py_ssize_t _partitions_at
    cdef Py_ssize_t _lanes_at
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef unsigned long long _slot_count
    cdef unsigned long long _max_partitions
    cdef Py_ssize_t _flushing_at
    cdef Py_ssize_t _max_processes
    cdef object _cluster
    cdef list _leader_epochs
    cdef list _sent_epochs
    cdef object _is_urgent

    @cython.locals(
        words=word[::1], entry=Py_ssize_t, at=Py_ssize_t, leader="unsigned long long", head="unsigned long long",
        has_room=dict, leaders=set, unknown=set, waiting=list, can_number=bint, delay_ms=double, left_ms=double,
    )
    cpdef ready(self, cluster, long long now_ms)

    @cython.locals(words=word[::1], count="unsigned long long", entry="unsigned long long", at=Py_ssize_t, found=list)
    cpdef list waiting(self, unsigned long long leader=*)

    @cython.locals(
        words=word[::1], count="unsigned long long", entry="unsigned long long", at=Py_ssize_t, header=Py_ssize_t,
        head="unsigned long long", found=list, waited_ms="long long", linger_ms="long long", left_ms=double,
        delay_ms=double,
    )
    cdef tuple _not_lingering(self, long long now_ms)

    @cython.locals(count="unsigned long long")
    cdef unsigned long long _partition_count(self) except? -1

    @cython.locals(memory=SlabMemory, lane="unsigned long long", lane_at=Py_ssize_t)
    cpdef bint may_send(self, Py_ssize_t at)

    @cython.locals(words=word[::1], header=Py_ssize_t, waited_ms="long long", linger_ms="long long")
    cdef double _left_ms(self, Py_ssize_t at, unsigned long long slot, long long now_ms)

    cpdef Py_ssize_t room_to_leave(self, node_id, long long now_ms)

    @cython.locals(memory=SlabMemory)
    cpdef bint may_grow(self, Py_ssize_t at, unsigned long long slot)

    @cython.locals(
        memory=SlabMemory, header=Py_ssize_t, sealing_since_ms="unsigned long long", attempts="unsigned long long",
        latest_ms="unsigned long long",
    )
    cpdef double not_due_ms(self, unsigned long long slot, long long now_ms)

    cdef bint _all_is_urgent(self)

    @cython.locals(words=word[::1], at=Py_ssize_t, _=Py_ssize_t)
    cdef bint _flush_in_progress(self)

    cpdef store_leaders(self, cluster)

    cdef note_sent(self, Py_ssize_t slot, Py_ssize_t entry)

    cdef bint _has_new_leader(self, Py_ssize_t slot, unsigned long long entry)
