cimport cython

@cython.final
cdef class OrderedWords:
    cdef object _view
