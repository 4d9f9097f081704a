cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef unsigned long long _CODE_MASK
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

cdef class Outcome:
    cdef readonly long long index
    cdef readonly unsigned long long batch
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t records
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly object error

cpdef unsigned long long pack_result(long long append_time_ms, error)

cdef class RingWriter:
    cdef SlabMemory _memory
    cdef object _geometry
    cdef Py_ssize_t _processes_at
    cdef Py_ssize_t _rings_at
    cdef unsigned long long _length

    @cython.locals(memory=SlabMemory, tail_at=Py_ssize_t, tail="unsigned long long", cell=Py_ssize_t)
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
    cdef SlabMemory _memory
    cdef object _name
    cdef long long _length
    cdef Py_ssize_t _ring
    cdef Py_ssize_t _head_at
    cdef public long long head
    cdef readonly Py_ssize_t tail_at

    @cython.locals(unread="long long")
    cpdef check(self)

    @cython.locals(
        words=word[::1], index="long long", cell=Py_ssize_t, span="unsigned long long", result="unsigned long long",
        outcome=Outcome,
    )
    cdef Outcome first(self)

    cdef take(self, Outcome outcome)
