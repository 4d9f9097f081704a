cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass

cdef class FastSemaphore:
    cdef sem_t *_address
    cpdef take_into(self, list unit)
    cpdef post(self)
    cpdef close(self)

cdef class FastMutex:
    cdef object _gate
    cdef unsigned long _owner
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _waiting
    cdef bint take(self)
    cpdef bint acquire(self, bint blocking=*, double timeout=*)
    cpdef release(self)
