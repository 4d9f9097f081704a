cimport cython
from shmaccum.shm.fastlocks cimport FastSemaphore
from shmaccum.shm.memory cimport word
from shmaccum.shm.turn cimport Turn

cdef unsigned long long _COUNTER

@cython.final
cdef class SlabLock:
    cdef object __weakref__
    cdef readonly word[::1] words
    cdef readonly Py_ssize_t number
    cdef readonly object semaphore
    cdef readonly object geometry
    cdef readonly object processes
    cdef public object rebuild
    cdef public bint is_bound
    cdef object _rejoin
    cdef object _state
    cdef object _slab_name
    cdef Turn _turn
    cdef object _take_turn
    cdef object _end_turn
    cdef object _wait_unit
    cdef object _post
    cdef unsigned long long _me
    cdef Py_ssize_t _owner_at
    cdef Py_ssize_t _wants_at
    cdef Py_ssize_t _parked_at
    cdef Py_ssize_t _released_at
    cdef double _rest_s
    cdef double _rested_at_s
    cdef FastSemaphore _fast

    @cython.locals(turn=Turn, unfinished="unsigned long long", unit=list)
    cpdef acquire(self, timeout_s=*)

    @cython.locals(turn=Turn)
    cpdef leave(self, bint unfinished)
