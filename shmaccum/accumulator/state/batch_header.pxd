cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef int _SIZE_SHIFT
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _MAX_TIMESTAMP
cdef Py_ssize_t _BASE_TIMESTAMP
cdef Py_ssize_t _CREATED_MS
cdef Py_ssize_t _OPENED_US
cdef Py_ssize_t _ATTEMPTS
cdef Py_ssize_t _SEQUENCE
cdef Py_ssize_t _MAX_RECORD
cdef Py_ssize_t _SETTLED
cdef Py_ssize_t _COMPRESSED
cdef Py_ssize_t _PART
cdef Py_ssize_t _LINGER
cdef Py_ssize_t _LIMITS
cdef Py_ssize_t _CONTRIBUTORS

@cython.locals(words=word[::1], index=Py_ssize_t, now_ms="unsigned long long")
cpdef begin(
    SlabMemory memory, Py_ssize_t header, Py_ssize_t contributor_words, unsigned long long now_us,
    unsigned long long size, unsigned long long record_count, unsigned long long base_timestamp,
    unsigned long long max_timestamp, unsigned long long max_record, unsigned long long compressed,
    unsigned long long linger, unsigned long long limits,
)
