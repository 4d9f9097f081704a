cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _HEAD
cdef Py_ssize_t _TAIL
cdef Py_ssize_t _ENOUGH
cdef Py_ssize_t _WAITING_SINCE_MS
cdef unsigned long long _CELLS
cdef unsigned long long _CELL_WORDS
cdef Py_ssize_t _SLOTS
cdef unsigned long long _LAST_TICKET
cdef unsigned long long _HELD
cdef unsigned long long _PASSED_OVER
cdef unsigned long long _LOOK
cdef unsigned long long _LOW_BYTE

@cython.locals(head="long long", tail="long long", ticket="long long", cells_at="long long")
cpdef list tickets(name, const word[::1] words, geometry)

@cython.locals(before="unsigned long long", tail="unsigned long long", head="unsigned long long")
cpdef (long long, long long) ends(name, const word[::1] words)

cdef class WaiterQueue:
    cdef object _name
    cdef SlabMemory _memory
    cdef object _geometry
    cdef long long _cells_at
    cdef object _most_at_once
    cdef tuple _last_seen
    cdef long long _woken_ticket
    cdef unsigned long long _woken_cell

    @cython.locals(words=word[::1])
    cpdef bint is_empty(self)

    @cython.locals(
        head="long long", tail="long long", ticket="long long", cell="unsigned long long", wanted="unsigned long long",
    )
    cpdef unsigned long long spare(self, unsigned long long free_slots) except? 0

    @cython.locals(words=word[::1], head="long long")
    cpdef leave(self, long long ticket)

    @cython.locals(words=word[::1], head="long long", tail="long long")
    cpdef move_on(self)

    @cython.locals(head="long long", tail="long long", ticket="long long")
    cpdef long long head(self) except? -2

    @cython.locals(words=word[::1], enough="unsigned long long")
    cpdef bint is_enough(self, unsigned long long free_slots)

    @cython.locals(ticket="long long", cell="unsigned long long")
    cpdef to_be_woken(self, unsigned long long free_slots)

    cpdef list tickets(self)

    @cython.locals(words=word[::1], cell="unsigned long long", looked="unsigned long long", first="unsigned long long")
    cpdef look(self, long long ticket)

    @cython.locals(words=word[::1])
    cpdef pass_over(self, long long ticket)

    cdef Py_ssize_t _at(self, long long ticket)

    cdef unsigned long long _cell(self, long long ticket)

    cdef unsigned long long _wanted(self, long long ticket)
