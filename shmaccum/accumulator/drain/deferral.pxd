cimport cython
from shmaccum.shm.locks cimport SlabLock

@cython.final
cdef class Deferral:
    cdef readonly dict _until_ms
    cpdef DeferringLock with_lock(self, SlabLock lock)
    cpdef acquire(self, SlabLock lock)
    cpdef run(self, SlabLock lock, work)

@cython.final
cdef class BatchReturns:
    cdef object _map
    cdef Deferral _deferral
    cdef dict _waiting
    cpdef retry(self)

@cython.final
cdef class DeferringLock:
    cdef SlabLock _lock
    cdef Deferral _deferral
