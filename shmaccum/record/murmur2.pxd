cimport cython

cdef unsigned long long _SEED
cdef unsigned long long _MULTIPLIER
cdef unsigned long long _MASK
cdef unsigned long long _POSITIVE
cdef list _UNPACK_WORDS

@cython.locals(digest="long long")
cpdef murmur2(bytes data)

cpdef partition_for_key(bytes key, Py_ssize_t partition_count)

@cython.locals(
    size=Py_ssize_t, count=Py_ssize_t, rest=Py_ssize_t, digest="unsigned long long", word="unsigned long long",
    words=tuple,
)
cdef unsigned long long _murmur2_unsigned(bytes data)
