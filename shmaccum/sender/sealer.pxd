cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.record.format cimport RecordFormat
from shmaccum.sender.transport cimport ProduceBatch
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _PART
cdef Py_ssize_t _COMPRESSED
cdef Py_ssize_t _LINGER
cdef unsigned long long _COMPRESSION_BITS
cdef object _NONE

@cython.final
cdef class Sealer:
    cdef SlabMemory _memory
    cdef object _map
    cdef RecordFormat _format
    cdef unsigned long long _header_size
    cdef int _magic
    cdef object _splitter
    cdef object _lanes
    cdef public object levels
    cdef Py_ssize_t _compressed_at

    @cython.locals(
        slab=SlabMemory, record_count=int32_t, base_timestamp=int64_t, max_timestamp=int64_t, producer_id=int64_t,
        producer_epoch=int16_t, base_sequence=int32_t, sealed=ProduceBatch, views=tuple,
        is_compressed=bint,
    )
    cpdef ProduceBatch seal(self, RecordBatch batch)
