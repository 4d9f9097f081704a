cimport cython

cdef class ProduceRequestResult:
    cdef readonly object topic_partition
    cdef readonly object waiter
    cdef public list parts
    cdef public Py_ssize_t told
    cdef public list callbacks

@cython.freelist(256)
cdef class FutureRecordMetadata:
    cdef object __weakref__
    cdef ProduceRequestResult _result
    cdef readonly Py_ssize_t index
    cdef long long _timestamp
