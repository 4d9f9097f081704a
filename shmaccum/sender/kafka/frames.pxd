cimport cython

cdef long long MAX_FRAME_BYTES
cdef Py_ssize_t _SIZE_SIZE
cdef Py_ssize_t _CORRELATION_ID_SIZE
cdef long long _LAST_INT32
cdef long long _INT32_RANGE

@cython.locals(number="unsigned int")
cpdef long long read_int32(bytes data, Py_ssize_t at) except? -1

@cython.final
cdef class FrameReader:
    cdef bytes _bytes
    cdef Py_ssize_t _begin
    cdef list _more
    cdef Py_ssize_t _size

    cpdef feed(self, bytes data)

    @cython.locals(begin=Py_ssize_t, size="long long", found="long long")
    cpdef bytes next(self, long long largest, long long correlation_id)

    cdef bint _has(self, long long size) except -1
