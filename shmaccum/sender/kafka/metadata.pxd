cdef class Metadata:
    cdef readonly object cluster
    cdef double _max_age_ms
    cdef double _max_idle_ms
    cdef object _backoff
    cdef dict _used_ms
    cdef readonly dict _epochs
    cdef dict _topic_ids
    cdef readonly bint _under_way
    cdef bint _needed
    cdef long long _attempts
    cdef double _not_before_ms
    cdef double _refreshed_ms

    cpdef use(self, topic, double now_ms)

    cpdef double due_ms(self)
