cimport cython
@cython.final
cdef class StickyPartitioner:
    cdef public Py_ssize_t partition
    cdef Py_ssize_t _sticky_bytes
    cdef Py_ssize_t _produced
    cdef object _topic
    cdef object _choose

    cpdef note_appended(self, Py_ssize_t size)

    cdef _switch(self)
