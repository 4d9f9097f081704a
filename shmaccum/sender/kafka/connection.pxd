cimport cython
from shmaccum.sender.kafka.channel cimport Channel
from shmaccum.sender.kafka.frames cimport FrameReader
from shmaccum.sender.kafka.poller cimport Poller
from shmaccum.sender.kafka.requests cimport CallRequest, Request
from shmaccum.sender.kafka.timing cimport monotonic_ms

cdef object _OPENING
cdef object _READY
cdef object _CLOSED
cdef long long _CORRELATION_IDS
cdef tuple _FAULTS

@cython.final
cdef class Connection:
    cdef readonly object node
    cdef readonly object handshake
    cdef readonly double last_used_ms
    cdef Channel _channel
    cdef Poller _poller
    cdef object _client_id
    cdef long long _request_timeout_ms
    cdef Py_ssize_t _max_in_flight
    cdef double _max_idle_ms
    cdef double _setup_timeout_ms
    cdef object _owner
    cdef object _notes
    cdef object _state
    cdef readonly bint has_been_ready
    cdef FrameReader _frames
    cdef object _conversation
    cdef object _background_calls
    cdef object _task
    cdef object _background_call
    cdef list _output
    cdef long long _queued_bytes
    cdef long long _sent_bytes
    cdef list _in_flight
    cdef list _unsent
    cdef long long _correlation_id
    cdef double _throttled_until_ms
    cdef double _log_in_again_ms
    cdef double _setup_deadline_ms
    cdef int _events

    cpdef bint is_ready(self)

    cpdef bint is_full(self)

    cpdef bint can_send(self, double now_ms)

    @cython.locals(now=double, queued_before="long long")
    cpdef send(self, Request request, bint is_answered=*)

    cpdef _handle(self, int events)

    cdef _broken(self, error)

    cdef _watch(self, int events)

    @cython.locals(output=list, written=Py_ssize_t, whole=Py_ssize_t)
    cpdef _flush(self)

    @cython.locals(data=bytes, frame=bytes, now=double)
    cpdef _receive(self)

    @cython.locals(request=Request)
    cdef bytes _next_frame(self)

    @cython.locals(request=Request)
    cdef _answer(self, bytes frame, double now_ms)

    @cython.locals(request=Request)
    cdef _note_in_flight(self)

    cdef Request _oldest(self)
