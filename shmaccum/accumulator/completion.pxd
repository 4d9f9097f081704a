cdef class RingReader:
    cdef dict __dict__
    cdef public long long head
    cdef readonly Py_ssize_t tail_at
