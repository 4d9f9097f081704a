cimport cython
from shmaccum.sender.kafka.fastcalls cimport FastCalls

cdef Py_ssize_t _MOST_BUFFERS
cdef FastCalls _fast_calls

cdef class Channel:
    cdef object _socket
    cdef int _descriptor
    cdef bint _connecting

    cpdef Py_ssize_t write(self, list buffers) except -1

    @cython.locals(data=bytes)
    cpdef list read(self)

@cython.final
cdef class TlsChannel(Channel):
    cdef object _context
    cdef object _host
    cdef object _tls

cdef bytes _not_empty(bytes data)
