cimport cython
from shmaccum.pool.bitmap cimport FreeBitmap
from shmaccum.shm.memory cimport SlabMemory, word

cdef unsigned long long _FREE
cdef unsigned long long _ALLOCATED
cdef Py_ssize_t _STATE
cdef Py_ssize_t _GENERATION
cdef unsigned long long _STATE_BITS
cdef Py_ssize_t _CHAIN
cdef int _SLOTS_SHIFT
cdef unsigned long long _SLOTS_BITS
cdef Py_ssize_t _PEAK_SLOTS
cdef Py_ssize_t _TOUCHED_SLOTS

@cython.final
cdef class Buffer:
    cdef readonly Py_ssize_t slot
    cdef readonly Py_ssize_t slots
    cdef readonly unsigned long long generation

@cython.final
cdef class Slots:
    cdef object _slab
    cdef SlabMemory _memory
    cdef unsigned long long _slot_count
    cdef FreeBitmap _bitmap

    cpdef unsigned long long free_count(self) except? 0

    @cython.locals(
        words=word[::1], owner="unsigned long long", state="unsigned long long", first=Py_ssize_t, found=Py_ssize_t,
        end=Py_ssize_t, slot=Py_ssize_t, header=Py_ssize_t, generation="unsigned long long",
    )
    cpdef take(self, Py_ssize_t count, list taken, Py_ssize_t most=*)

    @cython.locals(
        words=word[::1], slots=list, last=Py_ssize_t, following=Py_ssize_t, slot=Py_ssize_t, header=Py_ssize_t,
        first=Py_ssize_t, generation="unsigned long long",
    )
    cdef bint _take_chain(self, Py_ssize_t count, list taken) except -1

    @cython.locals(words=word[::1], buffer=Buffer, given=Py_ssize_t)
    cpdef Py_ssize_t give(self, buffers)

    cdef _give_chain(self, Py_ssize_t first, Py_ssize_t count)

    @cython.locals(memory=SlabMemory, header=Py_ssize_t, state="unsigned long long", is_taken=bint)
    cpdef bint is_taken(self, Buffer buffer)

    cdef Py_ssize_t _header(self, Py_ssize_t slot)

    @cython.locals(words=word[::1], free="unsigned long long", used="unsigned long long", peak="unsigned long long", touched="unsigned long long")
    cdef _note_use(self, unsigned long long end)

    @cython.locals(words=word[::1], state_at=Py_ssize_t, state="unsigned long long")
    cpdef list _free_dead(self, taken)
