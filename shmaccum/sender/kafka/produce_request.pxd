cimport cython
from shmaccum.sender.transport cimport ProduceBatch

cdef Py_ssize_t _FRAME_AND_HEADER_SIZE
cdef Py_ssize_t _SIZE_SIZE

cdef _put_int32(bytearray head, unsigned int number)
cdef _put_length(bytearray head, unsigned long long number)

cdef class ProduceEncoder:
    cdef object _version
    cdef bint _is_flexible
    cdef dict _topic_heads
    cdef bytes _rest_of_head

    @cython.locals(head=bytes, name=bytes, length=bytearray)
    cdef bytes _topic_head(self, topic)

    cdef _put_count(self, bytearray head, unsigned long long number)

    cdef _put_end(self, bytearray head)

    @cython.locals(
        batch=ProduceBatch, by_topic=dict, of_topic=list, buffers=list, head=bytearray, size=Py_ssize_t,
        payload_size=Py_ssize_t,
    )
    cpdef list encode(self, batches, correlation_id)
