"""Encodes the heads of batches in Produce requests, in C; `produce_request` holds the plain form."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint32_t htobe32(uint32_t)


cdef enum:
    INT32_SIZE = 4


cdef class FastHeads:
    """Encodes heads."""

    cpdef bytes batch(self, bytes before, int32_t partition, Py_ssize_t size, bint is_flexible):
        """See `produce_request.ProduceEncoder._batch_head`."""
        cdef uint64_t length = size + 1  # 0 means null
        cdef uint64_t rest = length
        cdef uint32_t number
        cdef Py_ssize_t length_size = 1
        cdef Py_ssize_t known = len(before)
        cdef bytes head
        cdef uint8_t *at
        if is_flexible:
            while rest > 0x7F:
                rest >>= 7
                length_size += 1
        else:
            length_size = INT32_SIZE
        head = PyBytes_FromStringAndSize(NULL, known + INT32_SIZE + length_size)
        at = <uint8_t *> PyBytes_AS_STRING(head)
        memcpy(at, PyBytes_AS_STRING(before), known)
        at += known
        number = htobe32(<uint32_t> partition)
        memcpy(at, &number, INT32_SIZE)
        at += INT32_SIZE
        if is_flexible:
            while length > 0x7F:
                at[0] = length & 0x7F | 0x80
                length >>= 7
                at += 1
            at[0] = <uint8_t> length
        else:
            number = htobe32(<uint32_t> size)
            memcpy(at, &number, INT32_SIZE)
        return head
