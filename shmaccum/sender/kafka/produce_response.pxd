cimport cython
from shmaccum.sender.transport cimport ProduceBatch

cdef Py_ssize_t _CORRELATION_ID_SIZE
cdef Py_ssize_t _PARTITION_SIZE
cdef bytes _NOTHING_MORE
cdef int _FEW_BITS
cdef long long _NO_TIME_MS

cdef class ProduceAnswers:
    cdef readonly list responses
    cdef readonly list hints
    cdef readonly object throttle_time_ms

@cython.locals(stored=dict, responses=list, batch=ProduceBatch)
cpdef ProduceAnswers decode_answers(version, bytes frame, batches, node)

@cython.locals(stored=dict, position=Py_ssize_t, begin=Py_ssize_t, length=Py_ssize_t, partitions=Py_ssize_t)
cpdef tuple _read_plain(bytes frame)

cdef bint _is_place(long long base_offset, long long append_time_ms)

@cython.locals(number="long long", shift=int, byte="unsigned char")
cdef tuple _read_length(bytes frame, Py_ssize_t position)
