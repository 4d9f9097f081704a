cimport cython

cdef Py_ssize_t _CORRELATION_ID_SIZE
cdef bytes _NOTHING_MORE
cdef long long _NO_TIME_MS

@cython.locals(stored=dict)
cpdef decode_answers(version, bytes frame, batches, node)

@cython.locals(stored=dict, position=Py_ssize_t, begin=Py_ssize_t)
cpdef _read_plain(bytes frame)

cdef bint _is_place(long long base_offset, long long append_time_ms)

@cython.locals(byte="unsigned char")
cdef tuple _read_length(bytes frame, Py_ssize_t position)
