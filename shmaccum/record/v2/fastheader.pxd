cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

@cython.final
cdef class _Covered:
    cdef uint8_t *begin
    cdef Py_ssize_t size

@cython.final
cdef class FastHeader:
    cdef _Covered _covered
    cdef object _crc32c

    cpdef write(
        self, buf, Py_ssize_t size, int16_t attributes, int32_t record_count, int64_t base_timestamp,
        int64_t max_timestamp, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
        tuple rest,
    )
