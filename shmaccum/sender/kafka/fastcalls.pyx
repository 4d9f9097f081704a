"""The system calls of every request, in C; `timing` and `channel` hold the plain form.

None of them waits, since the sockets do not block. So they keep the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "<sys/socket.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

    ssize_t recv(int descriptor, void *buffer, size_t size, int flags)
    ssize_t sendmsg(int descriptor, const msghdr *message, int flags)


cdef enum:
    MOST_BUFFERS = 256
    READ_SIZE = 1 << 16


cdef class FastCalls:
    """The calls. Errors are OSError."""

    cpdef double monotonic_ms(self):
        """Return the time of the monotonic clock."""
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        return now.tv_sec * 1e3 + now.tv_nsec / 1e6

    cpdef Py_ssize_t send(self, int descriptor, list buffers) except -1:
        """Send as many bytes of the buffers as go without waiting; return the bytes sent."""
        cdef Py_buffer views[MOST_BUFFERS]
        cdef iovec places[MOST_BUFFERS]
        cdef msghdr message
        cdef Py_ssize_t most = min(len(buffers), <Py_ssize_t> MOST_BUFFERS)
        cdef Py_ssize_t held = 0
        cdef Py_ssize_t sent
        try:
            while held < most:
                PyObject_GetBuffer(buffers[held], &views[held], PyBUF_SIMPLE)
                places[held].iov_base = views[held].buf
                places[held].iov_len = views[held].len
                held += 1
            memset(&message, 0, sizeof(message))
            message.msg_iov = places
            message.msg_iovlen = held
            sent = sendmsg(descriptor, &message, 0)
            while sent < 0 and errno == EINTR:
                sent = sendmsg(descriptor, &message, 0)
            if sent < 0:
                if errno != EAGAIN:
                    PyErr_SetFromErrno(OSError)
                sent = 0
            return sent
        finally:
            while held:
                held -= 1
                PyBuffer_Release(&views[held])

    cpdef bytes receive(self, int descriptor):
        """Return bytes that have arrived, none if the other side closed the connection; None if nothing has."""
        cdef char received[READ_SIZE]
        cdef Py_ssize_t size = recv(descriptor, received, READ_SIZE, 0)
        while size < 0 and errno == EINTR:
            size = recv(descriptor, received, READ_SIZE, 0)
        if size >= 0:
            return PyBytes_FromStringAndSize(received, size)
        if errno != EAGAIN:
            PyErr_SetFromErrno(OSError)
        return None
