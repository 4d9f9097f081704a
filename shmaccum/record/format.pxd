from libc.stdint cimport int16_t, int32_t, int64_t
from shmaccum.record.v2.records cimport write_header

cdef object _UNCOMPRESSED

cdef class RecordFormat:
    cdef readonly int magic
    cdef readonly Py_ssize_t header_size
    cdef readonly Py_ssize_t record_overhead_max
    cdef readonly bint compresses_ahead

    cpdef seal(
        self, batch, int32_t record_count, int64_t base_timestamp, int64_t max_timestamp, compression,
        int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint compressed=*,
        tuple rest=*, level=*, bint transactional=*,
    )

cdef class _DefaultFormat(RecordFormat):
    cpdef seal(
        self, batch, int32_t record_count, int64_t base_timestamp, int64_t max_timestamp, compression,
        int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint compressed=*,
        tuple rest=*, level=*, bint transactional=*,
    )

cdef class _LegacyFormat(RecordFormat):
    cpdef seal(
        self, batch, int32_t record_count, int64_t base_timestamp, int64_t max_timestamp, compression,
        int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint compressed=*,
        tuple rest=*, level=*, bint transactional=*,
    )

cdef _check_not_empty(int32_t record_count)
