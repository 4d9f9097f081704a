"""Writes the header of a batch of message format 2 in C, with the bytes of `shmaccum.record.v2.records`."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from shmaccum.record import checksum

cdef extern from "<endian.h>" nogil:
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint64_t htobe64(uint64_t)


cdef enum:
    NO_LEADER_EPOCH = -1
    MAGIC = 2
    LOG_OVERHEAD = 12
    LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    HEADER_SIZE = 61


# Stores a number in the header's byte order.
cdef inline void put16(uint8_t *at, int16_t number) noexcept:
    cdef uint16_t there = htobe16(<uint16_t> number)
    memcpy(at, &there, sizeof(there))


cdef inline void put32(uint8_t *at, int32_t number) noexcept:
    cdef uint32_t there = htobe32(<uint32_t> number)
    memcpy(at, &there, sizeof(there))


cdef inline void put64(uint8_t *at, int64_t number) noexcept:
    cdef uint64_t there = htobe64(<uint64_t> number)
    memcpy(at, &there, sizeof(there))


cdef class _Covered:
    """The memory under a checksum; a memoryview would take a fifth as long to create as the checksum."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.begin, self.size, 1, flags)


cdef class FastHeader:
    """Writes the header of a batch."""

    def __cinit__(self):
        self._covered = _Covered()

    cpdef write(
        self, buf, Py_ssize_t size, int16_t attributes, int32_t record_count, int64_t base_timestamp,
        int64_t max_timestamp, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
        tuple rest,
    ):
        """See `shmaccum.record.v2.records.write_header`."""
        cdef Py_buffer view
        cdef uint8_t *header
        cdef uint32_t crc
        PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
        try:
            if not HEADER_SIZE <= size <= view.len:
                raise ValueError(f"a batch of {size} bytes with its header does not fit {view.len} bytes")
            header = <uint8_t *> view.buf
            put16(header + ATTRIBUTES_AT, attributes)
            put32(header + LAST_OFFSET_DELTA_AT, record_count - 1)
            put64(header + BASE_TIMESTAMP_AT, base_timestamp)
            put64(header + MAX_TIMESTAMP_AT, max_timestamp)
            put64(header + PRODUCER_ID_AT, producer_id)
            put16(header + PRODUCER_EPOCH_AT, producer_epoch)
            put32(header + BASE_SEQUENCE_AT, base_sequence)
            put32(header + RECORD_COUNT_AT, record_count)
            self._covered.begin = header + ATTRIBUTES_AT
            self._covered.size = size - ATTRIBUTES_AT
            if self._crc32c is None:  # producers import this module too, but never call this
                self._crc32c = checksum.crc32c
            crc = self._crc32c(self._covered)
            for more in rest:
                crc = self._crc32c(more, crc)
                size += len(more)
            put64(header, 0)
            put32(header + LENGTH_AT, <int32_t> (size - LOG_OVERHEAD))
            put32(header + LEADER_EPOCH_AT, NO_LEADER_EPOCH)
            header[MAGIC_AT] = MAGIC
            put32(header + CRC_AT, <int32_t> crc)
        finally:
            self._covered.size = 0
            PyBuffer_Release(&view)
