cimport cython

cdef long long MAX_FRAME_BYTES

cdef class FrameReader:
    cdef object _bytes
    cdef Py_ssize_t _begin

    cpdef feed(self, bytes data)

    @cython.locals(begin=Py_ssize_t, size=Py_ssize_t)
    cpdef bytes next(self)
