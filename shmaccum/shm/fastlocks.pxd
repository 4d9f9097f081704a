cimport cython
from shmaccum.shm.memory cimport word

cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass

@cython.final
cdef class FastSemaphore:
    cdef sem_t *_address
    cpdef bint take(self) except -1
    cpdef bint take_soon(self, word[::1] words, Py_ssize_t owner_at, int looks) except -1
    cpdef int post(self) except -1
    cpdef close(self)

@cython.final
cdef class FastMutex:
    cdef object _gate
    cdef unsigned long _owner
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _waiting
    cdef bint take(self) noexcept
    cpdef bint acquire(self, bint blocking=*, double timeout=*) except -1
    cpdef int release(self) except -1
    cpdef bint _is_owned(self)
