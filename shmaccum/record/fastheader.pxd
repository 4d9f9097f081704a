from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef class FastHeader:
    cdef uint8_t *_memory(self, buf, Py_buffer *view) except NULL
    cpdef put_covered(
        self, buf, int16_t attributes, int32_t record_count, int64_t base_timestamp, int64_t max_timestamp,
        int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
    )
    cpdef put_up_to_crc(self, buf, int32_t length, int32_t leader_epoch, uint8_t magic, uint32_t crc)
