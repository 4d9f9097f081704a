cimport cython

cdef Py_ssize_t _FEW
cdef tuple _SIZES

@cython.locals(size=Py_ssize_t, key_size=bytes, value_size=bytes)
cpdef bytes encode_body(key, value, headers)

@cython.locals(later="long long", delta=bytes, offset=bytes, size=Py_ssize_t)
cpdef bytes encode_record(Py_ssize_t offset_delta, timestamp, base_timestamp, bytes body)
