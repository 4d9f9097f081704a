cimport cython
from libc.stdint cimport int64_t, uint8_t

# A column of cells, in Arrow's buffers.
cdef struct Column:
    const uint8_t *valid  # NULL if there is no null
    const uint8_t *offsets
    const uint8_t *data
    Py_ssize_t data_size
    Py_ssize_t before  # cells of the buffers before the first one
    Py_ssize_t count
    Py_ssize_t fixed_size
    int width  # bytes of an offset; 0: all cells have the fixed size; -1: there is no column, and all cells are null

cdef struct Cell:
    const uint8_t *data
    Py_ssize_t size  # -1 for a null

cdef struct Body:
    Cell key
    Cell value
    Cell headers
    Py_ssize_t size

@cython.final
@cython.final
cdef class FastCells:
    cdef Column _column
    cdef Py_buffer _valid
    cdef Py_buffer _offsets
    cdef Py_buffer _data

@cython.final
@cython.final
cdef class FastBodies:
    cdef FastCells _keys
    cdef FastCells _values
    cdef FastCells _header_sections
    cdef Column _key
    cdef Column _value
    cdef Column _headers

@cython.final
@cython.final
cdef class FastRows:
    cdef FastBodies _bodies
    cdef const int64_t[::1] _numbers
    cdef const int64_t[::1] _body_sizes
    cdef const int64_t[:] _timestamps

@cython.final
@cython.final
cdef class FastBatches:
    cdef FastRows _rows
    cdef Py_ssize_t _first_offset
    cdef readonly list cuts
    cdef readonly list sizes
    cdef readonly list largest
    cdef readonly list base_timestamps
    cdef readonly list max_timestamps

    cdef Py_ssize_t _measure(
        self, Py_ssize_t row, Py_ssize_t least, Py_ssize_t room, Py_ssize_t offset, int64_t base
    ) except -1
    cdef _write(self, uint8_t *at, Py_ssize_t size, Py_ssize_t number)
