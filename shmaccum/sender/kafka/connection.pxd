cimport cython

cdef object _READY
cdef object _CLOSED
cdef long long _CORRELATION_IDS

cdef class _InFlight:
    cdef readonly long long correlation_id
    cdef readonly double deadline_ms
    cdef readonly object on_answer
    cdef readonly object on_failure

cdef class Connection:
    cdef readonly object node
    cdef readonly object greeting
    cdef readonly double last_used_ms
    cdef object _channel
    cdef object _poller
    cdef object _client_id
    cdef long long _request_timeout_ms
    cdef Py_ssize_t _max_in_flight
    cdef double _max_idle_ms
    cdef double _setup_timeout_ms
    cdef object _owner
    cdef object _state
    cdef bint _has_been_ready
    cdef object _frames
    cdef object _conversation
    cdef object _output
    cdef long long _queued_bytes
    cdef long long _sent_bytes
    cdef object _in_flight
    cdef object _unsent
    cdef long long _correlation_id
    cdef double _throttled_until_ms
    cdef double _log_in_again_ms
    cdef double _setup_deadline_ms
    cdef int _events

    cpdef bint is_full(self)

    cpdef bint can_send(self, double now_ms)

    cdef long long _next_correlation_id(self)

    @cython.locals(now=double, request=_InFlight)
    cdef _send(self, long long correlation_id, frame, on_answer, on_failure, bint is_answered=*)

    cdef _watch(self, int events)

    @cython.locals(written=Py_ssize_t)
    cpdef _flush(self)

    @cython.locals(correlation_id="long long", request=_InFlight)
    cdef _answer(self, bytes frame, double now_ms)

    cdef _InFlight _oldest(self)
