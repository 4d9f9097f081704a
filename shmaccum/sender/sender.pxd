cimport cython
from shmaccum.accumulator.completer cimport BatchOutcome
from shmaccum.accumulator.record_batch cimport RecordBatch
from shmaccum.sender.transport cimport ProduceBatch, ProduceResponse
from shmaccum.shm.memory cimport SlabMemory, word

cdef int _REQUESTS_A_PASS
cdef unsigned long long _COMPLETING
cdef Py_ssize_t _STATE
cdef Py_ssize_t _PIECE
cdef unsigned long long _STATE_BITS
cdef unsigned long long _PROGRESS_MASK

cdef class Sender:
    cdef object _accumulator
    cdef object _slab
    cdef object _words
    cdef SlabMemory _memory
    cdef object _map
    cdef object _format
    cdef unsigned long long _header_size
    cdef int _magic
    cdef object _transport
    cdef object _doorbell
    cdef object _config
    cdef object _max_request_size
    cdef object _compression
    cdef bint _compresses
    cdef bint _guarantee_message_order
    cdef object _pieces
    cdef dict _in_flight
    cdef tuple _metadata_seen
    cdef bint _is_asked
    cdef object _cluster
    cdef bint _listening
    cdef object _stopping_since_ms
    cdef bint _stop_now
    cdef long long _next_housekeeping_ms
    cdef object _idleness
    cdef object _naps

    @cython.locals(
        expired=list, not_ready_timeout=double, poll_timeout=double, expiry_delay_ms=double, is_busy=bint,
        is_all=bint, may_sleep=bint, responses=list,
    )
    cpdef run_once(self, long long now_ms)

    cdef bint _update_metadata(self)

    cdef _update_producer_id(self)

    cdef _give_up_if_out_of_reach(self)

    @cython.locals(drained=list, batches=list, sealed=list, batch=RecordBatch)
    cdef bint _send_to(self, node, cluster, long long now_ms)

    @cython.locals(sealed=list, batch=RecordBatch)
    cdef list _seal_all(self, batches)

    @cython.locals(is_piece=bint)
    cdef ProduceBatch _seal(self, RecordBatch batch)

    @cython.locals(
        now_ms="long long", outcomes=list, out_of_date=set, bytes_sent=Py_ssize_t, size=Py_ssize_t, batch=RecordBatch,
        stored=bint, words=word[::1], response=ProduceResponse, produced=ProduceBatch, piece="unsigned long long",
    )
    cdef _handle_produce_responses(self, list responses)

    cdef _keep_house(self, long long now_ms)
