cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef unsigned long long _CODE_MASK
cdef int _RESULT_SHIFT
cdef int _RANGE_SHIFT
cdef unsigned long long _RANGE_MASK
cdef Py_ssize_t _PROCESS_WORDS
cdef Py_ssize_t _RING_HEAD
cdef Py_ssize_t _RING_TAIL
cdef Py_ssize_t _COMPLETION_WORDS
cdef Py_ssize_t _BATCH
cdef Py_ssize_t _BASE_OFFSET
cdef Py_ssize_t _RESULT
cdef Py_ssize_t _RANGE
cdef unsigned long long _LAST_INDEX

@cython.final
cdef class Outcome:
    cdef readonly unsigned long long index
    cdef readonly unsigned long long batch
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t records
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly object error
    cdef readonly unsigned long long incident

cpdef unsigned long long pack_result(long long append_time_ms, error, unsigned long long incident=*)

@cython.final
cdef class RingReader:
    cdef SlabMemory _memory
    cdef object _name
    cdef unsigned long long _length
    cdef Py_ssize_t _ring
    cdef Py_ssize_t _head_at
    cdef public unsigned long long head
    cdef readonly Py_ssize_t tail_at

    @cython.locals(tail="unsigned long long")
    cpdef check(self)

    @cython.locals(
        words=word[::1], index="unsigned long long", cell=Py_ssize_t, span="unsigned long long",
        result="unsigned long long", outcome=Outcome, is_error=bint,
    )
    cdef Outcome first(self)

    cdef take(self, Outcome outcome)
