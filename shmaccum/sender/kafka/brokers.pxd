cimport cython
from shmaccum.sender.kafka.connection cimport Connection

@cython.final
cdef class Broker:
    cdef public object node
    cdef public Connection connection
    cdef public Py_ssize_t failures
    cdef public double retry_ms
    cdef public list addresses
    cdef public object lookup
    cdef public double lookup_deadline_ms
    cdef public object incident
    cdef public object unreachable_since_ms
    cdef public object notes

    cpdef Connection ready_connection(self)

@cython.final
cdef class Brokers:
    cdef object _config
    cdef object _client_id
    cdef object _tls
    cdef object _mechanism
    cdef object _poller
    cdef object _on_change
    cdef object _journal
    cdef object _mask
    cdef object _background_calls
    cdef readonly object _backoff
    cdef object _setup_timeout
    cdef readonly dict _brokers
    cdef object _failure
    cdef public double next_check_ms

    @cython.locals(broker=Broker)
    cpdef failure(self, double now_ms)

    @cython.locals(broker=Broker)
    cpdef Connection connection(self, node)

    @cython.locals(connection=Connection)
    cpdef bint can_send(self, node, double now_ms)

    @cython.locals(broker=Broker)
    cpdef bint ready(self, node, double now_ms)

    @cython.locals(connection=Connection)
    cpdef bint are_busy(self, nodes)

    cpdef check_by(self, double time_ms)

    @cython.locals(broker=Broker)
    cpdef Broker _broker(self, node)
