cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass

cpdef wait_into(size_t address, list unit, double timeout_s)
