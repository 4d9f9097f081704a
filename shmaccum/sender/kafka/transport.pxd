cimport cython
from shmaccum.sender.kafka.brokers cimport Brokers
from shmaccum.sender.kafka.connection cimport Connection
from shmaccum.sender.kafka.produce_request cimport ProduceEncoder
from shmaccum.sender.kafka.produce_response cimport decode_answers

cdef class KafkaTransport:
    cdef object _config
    cdef object _client_id
    cdef int _acks
    cdef long long _request_timeout_ms
    cdef list _bootstrap
    cdef readonly object _metadata
    cdef object _producer_ids
    cdef tuple _inquiries
    cdef dict _encoders
    cdef readonly list _answers
    cdef set _awaited
    cdef bint _has_news
    cdef bint _has_new_nodes
    cdef readonly double _next_ms
    cdef object _poller
    cdef readonly Brokers _brokers

    cpdef bint ready(self, node, now_ms)

    cpdef bint is_busy(self)

    @cython.locals(connection=Connection, encoder=ProduceEncoder)
    cpdef send(self, node, batches, now_ms)

    @cython.locals(now_ms=double, end_ms=double, wait_ms=double)
    cpdef list poll(self, double timeout_ms, doorbell)

    @cython.locals(encoder=ProduceEncoder)
    cdef ProduceEncoder _encoder(self, version)

    @cython.locals(next_ms=double, due_ms=double)
    cdef _attend(self, double now_ms)

    cpdef bint _has_something(self, double now_ms)
