cimport cython
from shmaccum.sender.kafka.brokers cimport Brokers
from shmaccum.sender.kafka.connection cimport Connection
from shmaccum.sender.kafka.poller cimport Poller
from shmaccum.sender.kafka.produce_request cimport ProduceEncoder, by_partition
from shmaccum.sender.kafka.produce_response cimport ProduceAnswers, decode_answers, largest_answer
from shmaccum.sender.kafka.requests cimport Request
from shmaccum.sender.kafka.timing cimport monotonic_ms
from shmaccum.sender.transport cimport ProduceBatch

cdef class KafkaTransport

@cython.final
cdef class _ProduceRequest(Request):
    cdef KafkaTransport _transport
    cdef Connection _connection
    cdef ProduceEncoder _encoder
    cdef dict _batches
    cdef object _transactional_id

@cython.final
cdef class KafkaTransport:
    cdef object _config
    cdef object _journal
    cdef object _client_id
    cdef int _acks
    cdef long long _request_timeout_ms
    cdef list _bootstrap
    cdef object _mask
    cdef object _shown
    cdef long long _shunned
    cdef readonly object _metadata
    cdef object _producer_ids
    cdef dict _encoders
    cdef readonly list _answers
    cdef set _awaited
    cdef bint _has_news
    cdef bint _has_new_nodes
    cdef readonly double _next_ms
    cdef Poller _poller
    cdef object _background_calls
    cdef readonly Brokers _brokers

    cpdef failure(self)

    cpdef cluster(self)

    cpdef bint ready(self, node, double now_ms)

    cpdef bint is_busy(self)

    @cython.locals(connection=Connection, encoder=ProduceEncoder, found=dict)
    cpdef send(self, node, batches, double now_ms)

    @cython.locals(now_ms=double, end_ms=double, wait_ms=double)
    cpdef list poll(self, double timeout_ms, doorbell)

    @cython.locals(answers=ProduceAnswers)
    cdef _stored(self, Connection connection, dict batches, bytes frame)

    cdef _lost(self, dict batches, error, message)

    @cython.locals(encoder=ProduceEncoder)
    cdef ProduceEncoder _encoder(self, version)

    @cython.locals(metadata_ms=double, producer_id_ms=double)
    cdef _inquire(self, double now_ms)

    cpdef bint _has_something(self, double now_ms)
