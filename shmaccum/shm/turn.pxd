cimport cython
from shmaccum.shm.fastlocks cimport FastMutex

@cython.final
cdef class Turn:
    cdef readonly FastMutex fast
    cdef public object mutex
    cdef public object timeout_s
    cdef public object holding
    cdef public object current
    cdef public object keeper
