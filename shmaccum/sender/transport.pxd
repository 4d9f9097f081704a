cimport cython
@cython.final
cdef class ProduceBatch:
    cdef readonly object topic_partition
    cdef readonly tuple payload
    cdef readonly Py_ssize_t size
    cdef readonly long long record_count
    cdef readonly int magic
    cdef readonly long long producer_id
    cdef readonly int producer_epoch
    cdef readonly long long base_sequence
    cdef readonly long long max_timestamp
    cdef readonly long long slot
    cdef readonly object transactional_id
    cdef readonly int transaction_version
    cpdef release(self)

@cython.final
cdef class OwnJournal:
    cdef readonly bint has_been_let_in

@cython.final
cdef class ProduceResponse:
    cdef readonly ProduceBatch batch
    cdef readonly long long base_offset
    cdef readonly long long log_append_time_ms
    cdef readonly object error
    cdef readonly object message
    cdef readonly object invalid_records
    cdef readonly object words
