cimport cython
from shmaccum.shm.turn cimport Turn

cdef int _BUSY
cdef int _TAKEN
cdef int _UNFINISHED
cdef int _REJOIN

@cython.final
cdef class SlabLock:
    cdef object __weakref__
    cdef readonly Py_ssize_t number
    cdef readonly object processes
    cdef public object rebuild
    cdef public bint is_bound
    cdef object _core
    cdef object _acquire_now
    cdef object _release
    cdef object _words
    cdef object _rejoin
    cdef object _slab_name
    cdef Turn _turn
    cdef object _take_turn
    cdef object _end_turn
    cdef double _rest_s
    cdef double _rested_at_s

    @cython.locals(turn=Turn, status=int)
    cpdef acquire(self, timeout_s=*)

    @cython.locals(turn=Turn)
    cpdef leave(self, bint unfinished)
