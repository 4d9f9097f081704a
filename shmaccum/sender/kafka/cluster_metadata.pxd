cimport cython

cdef class _Topic:
    cdef public double used_ms
    cdef public object answered_ms
    cdef public long long unchanged

cdef class Metadata:
    cdef readonly object cluster
    cdef long long _most_partitions
    cdef double _max_age_ms
    cdef double _max_idle_ms
    cdef readonly bint rebootstraps
    cdef double _rebootstrap_trigger_ms
    cdef object _backoff
    cdef readonly dict _topics
    cdef dict _wanted
    cdef double _wanted_ms
    cdef dict _asked
    cdef readonly bint _under_way
    cdef long long _failures
    cdef double _not_before_ms
    cdef double _round_ms
    cdef double _last_round_ms
    cdef long long _rounds_unchanged
    cdef long long _round_version
    cdef object _trying_since_ms
    cdef dict _nodes
    cdef dict _counts
    cdef dict _leaders
    cdef dict _errors
    cdef dict _ids
    cdef readonly dict _epochs
    cdef set _pending
    cdef dict _changes
    cdef long long _version

    @cython.locals(used=_Topic)
    cpdef use(self, topic, double now_ms)

    cpdef double due_ms(self)
