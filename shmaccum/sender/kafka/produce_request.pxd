cimport cython
from shmaccum.sender.kafka.fastheads cimport FastHeads
from shmaccum.sender.transport cimport ProduceBatch

cdef Py_ssize_t _FRAME_AND_HEADER_SIZE
cdef Py_ssize_t _SIZE_SIZE
cdef Py_ssize_t _FEW
cdef FastHeads _fast_heads

@cython.locals(found=dict, of_topic=dict, batch=ProduceBatch)
cpdef dict by_partition(batches)

@cython.locals(varint=bytearray)
cdef bytes _length(unsigned long long number)

@cython.final
cdef class ProduceEncoder:
    cdef object _version
    cdef bint _is_flexible
    cdef bytes _end
    cdef list _few
    cdef dict _topic_heads
    cdef bytes _client
    cdef bytes _no_id
    cdef bytes _behind_id

    @cython.locals(head=bytes)
    cdef bytes _topic_head(self, topic)

    @cython.locals(encoded=bytes)
    cdef bytes _text(self, str text)

    cdef bytes _count(self, Py_ssize_t number)

    cdef bytes _any_count(self, Py_ssize_t number)

    cdef bytes _batch_head(self, bytes before, int partition, Py_ssize_t size)

    @cython.locals(
        batch=ProduceBatch, of_topic=dict, buffers=list, head=bytes, size=Py_ssize_t,
    )
    cpdef list encode(self, dict batches, long long correlation_id, str transactional_id=*)
