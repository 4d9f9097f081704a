cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass

cdef class FastSemaphore:
    cdef sem_t *_address
    cpdef take_into(self, list unit)
    cpdef close(self)
