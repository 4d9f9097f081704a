"""What a record of message format 2 is made of, in C: its time, its body, and its bytes in an open batch.

The same bytes as `shmaccum.record.v2` makes, without any Python object for what lies between. (Where it is not
compiled, that module does all of it, and so it does here for records with headers.)
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from shmaccum.shm.memory cimport SlabMemory, word


cdef inline unsigned long long zigzag(long long n) noexcept:
    return (<unsigned long long> n << 1) ^ (0 - <unsigned long long> (n < 0))


cdef inline Py_ssize_t size_of(unsigned long long n) noexcept:
    cdef Py_ssize_t size = 1
    while n > 0x7F:
        n >>= 7
        size += 1
    return size


cdef inline unsigned char *put(unsigned char *at, unsigned long long n) noexcept:
    while n > 0x7F:
        at[0] = <unsigned char> (n & 0x7F | 0x80)
        n >>= 7
        at += 1
    at[0] = <unsigned char> n
    return at + 1


cdef inline unsigned char *put_field(unsigned char *at, bytes field) noexcept:
    if field is None:
        return put(at, zigzag(-1))
    at = put(at, zigzag(PyBytes_GET_SIZE(field)))
    memcpy(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
    return at + PyBytes_GET_SIZE(field)


cdef inline Py_ssize_t size_of_field(bytes field) noexcept:
    return 1 if field is None else size_of(zigzag(PyBytes_GET_SIZE(field))) + PyBytes_GET_SIZE(field)


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
        """Return what `v2.encode_body` gives for a record without headers."""
        cdef bytes body = PyBytes_FromStringAndSize(NULL, size_of_field(key) + size_of_field(value) + 1)
        cdef unsigned char *at = <unsigned char *> PyBytes_AS_STRING(body)
        at = put_field(put_field(at, key), value)
        at[0] = 0
        return body

    cpdef Py_ssize_t write(
        self, Py_ssize_t start, Py_ssize_t end, Py_ssize_t offset_delta, long long timestamp_delta, bytes body
    ) except -1:
        """Write what `v2.encode_record` gives into the slab, from byte ``start`` on.

        Returns:
            How many bytes those are; 0, with nothing written, if there is no room for them before ``end``.

        Raises:
            IndexError: that is not in the slab.
        """
        cdef word[::1] words = self._memory.words
        cdef unsigned long long delta = zigzag(timestamp_delta)
        cdef unsigned long long offset = zigzag(offset_delta)
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t size = 1 + size_of(delta) + size_of(offset) + body_size
        cdef Py_ssize_t whole = size_of(zigzag(size)) + size
        cdef unsigned char *at
        if whole > end - start:
            return 0
        if start < 0 or end > words.shape[0] * <Py_ssize_t> sizeof(word):
            raise IndexError(f"bytes {start} to {end} of a slab of {words.shape[0]} words")
        at = put(<unsigned char *> <size_t> &words[0] + start, zigzag(size))
        at[0] = 0
        at = put(put(at + 1, delta), offset)
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        return whole
