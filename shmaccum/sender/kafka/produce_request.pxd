cimport cython
from shmaccum.sender.transport cimport ProduceBatch

cdef class ProduceEncoder:
    cdef object _version
    cdef object _string_length
    cdef object _length
    cdef bytes _end
    cdef dict _topic_heads
    cdef bytes _rest_of_head

    cdef bytes _topic_head(self, topic)

    @cython.locals(
        batch=ProduceBatch, by_topic=dict, of_topic=list, buffers=list, head=list, joined=bytes, end=bytes, size=Py_ssize_t,
        payload_size=Py_ssize_t,
    )
    cpdef list encode(self, batches, correlation_id)
