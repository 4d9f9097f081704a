cdef class Patience:
    cdef dict _until_ms
    cpdef with_lock(self, lock)
    cpdef _enter(self, lock)

cdef class PatientLock:
    cdef object _lock
    cdef Patience _patience
