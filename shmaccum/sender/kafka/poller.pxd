cimport cython

@cython.final
cdef class Poller:
    cdef object _epoll
    cdef dict _handlers
    cdef int _doorbell

    cpdef listen_to(self, int doorbell)

    @cython.locals(descriptor=int, rings=bint)
    cpdef bint wait(self, double timeout_ms)
