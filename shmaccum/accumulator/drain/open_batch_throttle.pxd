cimport cython
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _FREE_SLOTS
cdef Py_ssize_t _STATE
cdef Py_ssize_t _GENERATION
cdef unsigned long long _STATE_BITS
cdef unsigned long long _IN_FLIGHT

@cython.final
cdef class OpenBatchThrottle:
    cdef SlabMemory _memory
    cdef object _pool
    cdef unsigned long long _least_free
    cdef unsigned long long _slot_count
    cdef Py_ssize_t _at_once
    cdef Py_ssize_t _taken
    cdef double _rest_until_ms
    cdef dict _last_taken

    @cython.locals(free="unsigned long long")
    cpdef Py_ssize_t room(self, node_id)

    @cython.locals(words=word[::1], header=Py_ssize_t)
    cpdef take(self, node_id, Py_ssize_t count, Py_ssize_t last_slot)

    cpdef double rest_ms(self, double now_ms)

    cpdef rest_after(self, double began_ms, double ended_ms)

    @cython.locals(words=word[::1], header=Py_ssize_t, slot=Py_ssize_t, generation="unsigned long long")
    cdef bint _is_under_way(self, node_id)
