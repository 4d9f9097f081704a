cimport cython
from shmaccum.sender.kafka.frames cimport read_int32
from shmaccum.sender.transport cimport ProduceBatch, ProduceResponse

cdef Py_ssize_t _CORRELATION_ID_SIZE
cdef int _FEW_BITS
cdef Py_ssize_t _ERROR_AT
cdef Py_ssize_t _BASE_OFFSET_AT
cdef Py_ssize_t _APPEND_TIME_AT
cdef Py_ssize_t _MORE_AT
cdef Py_ssize_t _PARTITION_SIZE
cdef long long _NO_TIME_MS
cdef Py_ssize_t _THROTTLE_SIZE
cdef Py_ssize_t _END_SIZE
cdef long long _INT32_RANGE
cdef long long _LITTLE_BYTES
cdef long long _BATCH_BYTES
cdef long long _RECORD_BYTES

@cython.final
cdef class ProduceAnswers:
    cdef readonly list responses
    cdef readonly list hints
    cdef readonly long long throttle_time_ms

@cython.locals(responses=list)
cpdef ProduceAnswers decode_answers(version, bytes frame, dict batches, node, shown=*)

@cython.locals(batch=ProduceBatch, of_topic=dict, size="long long")
cpdef long long largest_answer(dict batches) except -1

@cython.locals(
    responses=list, of_topic=dict, awaited=dict, awaited_of_topic=dict, batch=ProduceBatch, position=Py_ssize_t, length=Py_ssize_t,
    topics=Py_ssize_t, partitions=Py_ssize_t, base_offset="long long",
    append_time_ms="long long", is_whole=bint,
)
cpdef list _read_plain(bytes frame, dict batches)

@cython.locals(more_at=Py_ssize_t)
cdef bint _is_plain(bytes frame, Py_ssize_t position) except -1

cdef bint _is_place(long long base_offset, long long append_time_ms)

@cython.locals(response=ProduceResponse)
cdef ProduceResponse _stored(ProduceBatch batch, long long base_offset, long long append_time_ms)

@cython.locals(high="long long", low="long long")
cdef long long _read_int64(bytes frame, Py_ssize_t position) except? -1

@cython.locals(number="long long", shift=int, byte="unsigned char")
cdef (long long, Py_ssize_t) _read_length(bytes frame, Py_ssize_t position)
