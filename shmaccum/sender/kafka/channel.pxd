cdef Py_ssize_t _MOST_BUFFERS

cdef class Channel:
    cdef object _socket
    cdef bint _connecting

    cpdef write(self, buffers)
    cpdef list read(self)

cdef class TlsChannel(Channel):
    cdef object _context
    cdef object _host
    cdef object _tls
