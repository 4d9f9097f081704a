"""Encodes records of message format 2 in C: the time, the body, and the bytes in an open batch.

The bytes equal those of `shmaccum.record.v2.records`, without Python objects in between. That module encodes all records
of the plain form, and records with headers in both forms.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from shmaccum.record.v2.varint cimport put_varint, varint_size
from shmaccum.shm.memory cimport SlabMemory, word


cdef inline uint8_t *put_field(uint8_t *at, bytes field) noexcept:
    if field is None:
        return put_varint(at, -1)
    at = put_varint(at, PyBytes_GET_SIZE(field))
    memcpy(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
    return at + PyBytes_GET_SIZE(field)


cdef inline Py_ssize_t size_of_field(bytes field) noexcept:
    return 1 if field is None else varint_size(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field)


cdef class FastRecords:
    """Writes records into a slab."""

    def __cinit__(self, SlabMemory memory not None):
        self._memory = memory

    cpdef long long now_ms(self):
        """Return the time of day, in milliseconds since the epoch."""
        cdef timespec now
        clock_gettime(CLOCK_REALTIME, &now)
        return now.tv_sec * 1000 + now.tv_nsec // 1_000_000

    cpdef bytes encode_body(self, bytes key, bytes value):
        """Return the result of `v2.encode_body` for a record without headers."""
        cdef bytes body = PyBytes_FromStringAndSize(NULL, size_of_field(key) + size_of_field(value) + 1)
        cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(body)
        at = put_field(put_field(at, key), value)
        at[0] = 0
        return body

    cpdef Py_ssize_t write(
        self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t offset_delta, long long timestamp_delta, bytes body
    ) except -1:
        """Write the result of `v2.encode_record` into the slab, from byte ``start`` on.

        Returns:
            The number of bytes; 0, with nothing written, if they do not fit before ``end``.

        Raises:
            IndexError: the bytes are outside the slab.
        """
        cdef word[::1] words = self._memory.words
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + body_size
        cdef Py_ssize_t whole = varint_size(size) + size
        cdef uint8_t *at
        if whole > end - start:
            return 0
        if start < 0 or end > words.shape[0] * <Py_ssize_t> sizeof(word):
            raise IndexError(f"bytes {start} to {end} are outside a slab of {words.shape[0]} words")
        at = put_varint(<uint8_t *> <size_t> &words[0] + start, size)
        at[0] = 0
        at = put_varint(put_varint(at + 1, timestamp_delta), offset_delta)
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        return whole
