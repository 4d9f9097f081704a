cimport cython

@cython.final
cdef class Callbacks:
    cdef dict _waiting
    cdef object _running
    cdef readonly object due

    @cython.locals(waiting=list)
    cpdef add(self, batch, callback, future)

    cpdef told_of(self, unsigned long long batch)

    cpdef run(self)

    @cython.locals(waiting=list, at=Py_ssize_t)
    cpdef run_of(self, batch)

@cython.locals(error=object, metadata=object)
cdef _run(callback, future)
