cimport cython
from shmaccum.accumulator.drain.completer cimport BatchOutcome
from shmaccum.accumulator.drain.sequence_doubt cimport SequenceDoubt
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.sender.response_handler cimport ResponseHandler
from shmaccum.sender.sealer cimport Sealer
from shmaccum.sender.sleep cimport Sleep
from shmaccum.sender.transport cimport ProduceBatch
from shmaccum.shm.memory cimport SlabMemory
from shmaccum.shm.wakeup cimport Doorbell

cdef int _REQUESTS_A_PASS
cdef Py_ssize_t _SETTINGS_GENERATION
cdef Py_ssize_t _REQUESTS_SENT
cdef Py_ssize_t _PART

@cython.final
cdef class Sender:
    cdef object _accumulator
    cdef object _pool
    cdef object _slab
    cdef SlabMemory _memory
    cdef Sequences _sequences
    cdef SequenceDoubt _doubt
    cdef object _transport
    cdef Doorbell _doorbell
    cdef object _config
    cdef unsigned long long _settings_seen
    cdef Py_ssize_t _max_request_size
    cdef object _topic_requests
    cdef object _splitter
    cdef Sealer _sealer
    cdef ResponseHandler _responses
    cdef Sleep _sleep
    cdef object _coalescing
    cdef object _incidents
    cdef object _stopping_since_ms
    cdef bint _stop_now
    cdef object _blocked_since_ms
    cdef bint _gives_way
    cdef readonly bint has_handed_over
    cdef long long _next_housekeeping_ms

    @cython.locals(
        doorbell=Doorbell, is_waiting=bint, expired=list, has_backlog=bint, is_busy=bint, may_sleep=bint,
        timeout_ms=double, responses=list,
    )
    cpdef run_once(self, long long now_ms)

    cdef _update_producer_id(self)

    cdef _give_up_if_out_of_reach(self)

    @cython.locals(has_backlog=bint)
    cdef bint _send(self, nodes, cluster, long long now_ms)

    @cython.locals(drained=list, sealed=list)
    cdef bint _send_to(self, node, cluster, long long now_ms)

    @cython.locals(sealed=list, batch=RecordBatch, produced=ProduceBatch)
    cdef list _seal_all(self, list drained, long long now_ms)

    cdef _reclaim_from_dead(self, long long now_ms)
