cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef struct Cell:
    const uint8_t *data
    Py_ssize_t size  # -1 for a null

cdef struct Body:
    Cell key
    Cell value
    Cell headers
    Py_ssize_t size

cdef struct Extent:
    Py_ssize_t first
    Py_ssize_t stop
    Py_ssize_t offset
    int64_t base

@cython.final
cdef class FastCells:
    cdef Py_ssize_t _count
    cdef Py_ssize_t _before
    cdef int _width
    cdef Py_ssize_t _fixed_size
    cdef Py_buffer _valid
    cdef Py_buffer _offsets
    cdef Py_buffer _data

    cdef bint find(self, Py_ssize_t row, Cell *cell) noexcept

@cython.final
cdef class FastBodies:
    cdef FastCells _key
    cdef FastCells _value
    cdef FastCells _headers

    cdef bint find(self, Py_ssize_t row, Body *body) noexcept

@cython.final
cdef class FastBatches:
    cdef FastBodies _records
    cdef const int64_t[::1] _rows
    cdef const int64_t[::1] _timestamps
    cdef list _starts
    cdef Py_ssize_t _stop
    cdef Py_ssize_t _first_offset
    cdef int64_t _first_base
    cdef readonly list sizes
    cdef readonly list largest

    cdef Extent _extent(self, Py_ssize_t number) except *
    cdef _write(self, uint8_t *at, Py_ssize_t size, Py_ssize_t number)
