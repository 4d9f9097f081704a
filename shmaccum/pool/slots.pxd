cimport cython
from shmaccum.pool.bitmap cimport FreeBitmap
from shmaccum.shm.memory cimport SlabMemory, word

cdef unsigned long long _FREE
cdef unsigned long long _ALLOCATED
cdef Py_ssize_t _STATE
cdef Py_ssize_t _GENERATION
cdef unsigned long long _STATE_BITS
cdef int _RUN_SHIFT
cdef unsigned long long _RUN_BITS
cdef Py_ssize_t _PEAK_SLOTS
cdef Py_ssize_t _TOUCHED_SLOTS

cdef class Buffer:
    cdef readonly Py_ssize_t slot
    cdef readonly Py_ssize_t slots
    cdef readonly unsigned long long generation

cdef class Slots:
    cdef object _slab
    cdef SlabMemory _memory
    cdef Py_ssize_t _slot_count
    cdef FreeBitmap _bitmap

    cpdef Py_ssize_t free_count(self)

    @cython.locals(
        words=word[::1], owner="unsigned long long", state="unsigned long long", first=Py_ssize_t, runs=Py_ssize_t,
        end=Py_ssize_t, slot=Py_ssize_t, header=Py_ssize_t, generation="unsigned long long",
    )
    cpdef take(self, Py_ssize_t count, list taken, Py_ssize_t most=*)

    @cython.locals(words=word[::1], buffer=Buffer, given=Py_ssize_t)
    cpdef Py_ssize_t give(self, buffers)

    @cython.locals(memory=SlabMemory, header=Py_ssize_t, state="unsigned long long", is_taken=bint)
    cpdef bint is_taken(self, Buffer buffer)

    cdef Py_ssize_t _header(self, Py_ssize_t slot)

    @cython.locals(words=word[::1], used=Py_ssize_t, peak=Py_ssize_t, touched=Py_ssize_t)
    cdef _note_use(self, Py_ssize_t end)

    @cython.locals(words=word[::1], state_at=Py_ssize_t, state="unsigned long long")
    cpdef list _free_dead(self, runs)
