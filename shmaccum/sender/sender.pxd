cimport cython
from shmaccum.accumulator.drain.completer cimport BatchOutcome, stored_at
from shmaccum.accumulator.state.partition_map cimport PartitionMap
from shmaccum.accumulator.drain.sender_accumulator cimport SenderAccumulator
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.sender.response_coalescing cimport ResponseCoalescing
from shmaccum.sender.sealer cimport Sealer
from shmaccum.sender.topic_requests cimport TopicRequests
from shmaccum.sender.transport cimport ProduceBatch, ProduceResponse
from shmaccum.shm.memory cimport SlabMemory, word

cdef int _REQUESTS_A_PASS
cdef Py_ssize_t _SETTINGS_GENERATION
cdef tuple _DAMAGES
cdef Py_ssize_t _REQUESTS_SENT
cdef Py_ssize_t _BYTES_SENT
cdef unsigned long long _COMPLETING
cdef Py_ssize_t _STATE
cdef Py_ssize_t _PIECE
cdef unsigned long long _STATE_BITS
cdef unsigned long long _PROGRESS_MASK
cdef Py_ssize_t _RAN
cdef int _SLEEP_BITS
cdef double _MAX_SLEEP_MS

cdef class Sender:
    cdef SenderAccumulator _accumulator
    cdef object _pool
    cdef object _slab
    cdef SlabMemory _memory
    cdef PartitionMap _map
    cdef Sequences _sequences
    cdef object _transport
    cdef object _doorbell
    cdef object _config
    cdef unsigned long long _settings_seen
    cdef object _limits
    cdef Py_ssize_t _max_request_size
    cdef bint _guarantee_message_order
    cdef TopicRequests _topic_requests
    cdef object _splitter
    cdef Sealer _sealer
    cdef list _in_flight
    cdef Py_ssize_t _under_way
    cdef bint _listening
    cdef object _stopping_since_ms
    cdef bint _stop_now
    cdef bint _gives_way
    cdef readonly bint has_handed_over
    cdef long long _next_housekeeping_ms
    cdef object _idleness
    cdef ResponseCoalescing _coalescing
    cdef object _incidents

    @cython.locals(
        expired=list, not_ready_timeout=double, poll_timeout=double, expiry_delay_ms=double, is_busy=bint,
        is_all=bint, may_sleep=bint, responses=list,
    )
    cpdef run_once(self, long long now_ms)

    cdef _update_producer_id(self)

    cdef _give_up_if_out_of_reach(self)

    @cython.locals(drained=list, sealed=list)
    cdef bint _send_to(self, node, cluster, long long now_ms)

    @cython.locals(words=word[::1], sealed=list, batch=RecordBatch)
    cdef list _seal_all(self, list drained, long long now_ms)

    @cython.locals(
        now_ms="long long", outcomes=list, out_of_date=set, bytes_sent=Py_ssize_t, size=Py_ssize_t, batch=RecordBatch,
        stored=bint, words=word[::1], response=ProduceResponse, produced=ProduceBatch, piece="unsigned long long",
    )
    cdef _handle_produce_responses(self, list responses)

    @cython.locals(batch=RecordBatch)
    cdef RecordBatch _landed(self, Py_ssize_t slot)

    cdef _keep_house(self, long long now_ms)
