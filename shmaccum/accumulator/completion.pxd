cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _PROCESS_WORDS
cdef Py_ssize_t _RING_HEAD
cdef Py_ssize_t _RING_TAIL
cdef Py_ssize_t _COMPLETION_WORDS
cdef Py_ssize_t _BATCH
cdef Py_ssize_t _BASE_OFFSET
cdef Py_ssize_t _RESULT
cdef Py_ssize_t _RANGE

cpdef unsigned long long pack_result(long long append_time_ms, error)

cdef class RingWriter:
    cdef SlabMemory _memory
    cdef object _geometry
    cdef Py_ssize_t _processes_at
    cdef Py_ssize_t _rings_at
    cdef unsigned long long _length

    @cython.locals(words=word[::1], tail_at=Py_ssize_t, tail="unsigned long long", cell=Py_ssize_t)
    cpdef tell(
        self, Py_ssize_t entry, unsigned long long batch, unsigned long long range_word,
        unsigned long long base_offset_word, unsigned long long result_word,
    )

    @cython.locals(words=word[::1], tail="unsigned long long", index="unsigned long long", cell=Py_ssize_t)
    cpdef bint has_told(self, Py_ssize_t entry, unsigned long long batch, unsigned long long range_word)

    @cython.locals(words=word[::1], base=Py_ssize_t)
    cdef unsigned long long _unread(self, Py_ssize_t entry)

    cdef Py_ssize_t _cell(self, Py_ssize_t entry, unsigned long long index)

cdef class RingReader:
    cdef dict __dict__
    cdef public long long head
    cdef readonly Py_ssize_t tail_at
