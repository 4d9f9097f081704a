cdef class ClockWait:
    cdef object _semaphore
    cdef object _address

    cpdef into(self, list unit, double timeout_s)

    cdef _opened(self)
