cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _FREE_SLOTS
cdef Py_ssize_t _WORD_BITS
cdef unsigned long long _ALL_BITS

@cython.final
cdef class FreeBitmap:
    cdef object _buffer
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end
    cdef SlabMemory _memory
    cdef Py_ssize_t _words_at
    cdef Py_ssize_t _words_end
    cdef object _slot_count

    cpdef unsigned long long free_count(self) except? 0
    cpdef list find(self, Py_ssize_t count)

    @cython.locals(
        words=word[::1], slots=list, at=Py_ssize_t, free="unsigned long long", lowest="unsigned long long",
    )
    cdef list _lowest(self, Py_ssize_t count)

    @cython.locals(
        words=word[::1], at=Py_ssize_t, bit=Py_ssize_t, adjacent=Py_ssize_t, free="unsigned long long",
        from_there="unsigned long long",
    )
    cpdef (Py_ssize_t, Py_ssize_t) find_some(self, Py_ssize_t most)

    cpdef take(self, Py_ssize_t first, Py_ssize_t count)
    cpdef give(self, Py_ssize_t first, Py_ssize_t count)

    @cython.locals(memory=SlabMemory, end=Py_ssize_t, at=Py_ssize_t, bit=Py_ssize_t, here=Py_ssize_t,
                   mask="unsigned long long")
    cdef _mark(self, Py_ssize_t first, Py_ssize_t count, bint is_free)
