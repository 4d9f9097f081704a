cimport cython
cdef class Request:
    cdef public long long correlation_id
    cdef public double deadline_ms
    cdef public double sent_ms
    cdef public long long largest_answer

    cpdef list frame(self, long long correlation_id)
    cpdef answered(self, bytes frame)
    cpdef failed(self, error, message)

@cython.final
cdef class CallRequest(Request):
    cdef object _call
    cdef object _client_id
    cdef object _on_answer
    cdef object _on_failure
