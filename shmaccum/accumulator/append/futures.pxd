cimport cython

cdef int _KEY_SHIFT
cdef unsigned long long _VALUE_MASK

@cython.final
cdef class Part:
    cdef readonly Py_ssize_t first
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly object failure

@cython.final
cdef class ProduceRequestResult:
    cdef readonly object topic_partition
    cdef readonly unsigned long long batch
    cdef readonly Py_ssize_t lane
    cdef object _waiter
    cdef readonly Py_ssize_t told
    cdef readonly Part last
    cdef readonly list earlier

    cpdef settle(self, Part part, Py_ssize_t records)

    @cython.locals(part=Part, earlier=list)
    cpdef Part part_of(self, Py_ssize_t index)

@cython.final
cdef class Chunk:
    cdef readonly list results
    cdef readonly object rows
    cdef readonly list cuts
    cdef readonly Py_ssize_t first

    @cython.locals(cuts=list, first=Py_ssize_t, number=Py_ssize_t, result=ProduceRequestResult)
    cpdef bint is_done(self)

@cython.final
cdef class FutureColumnsMetadata:
    cdef object __weakref__
    cdef readonly Py_ssize_t _rows
    cdef readonly object _waiter
    cdef readonly list _chunks
    cdef Py_ssize_t _done

    cpdef add(self, Chunk chunk)

    @cython.locals(chunks=list, chunk=Chunk, done=Py_ssize_t)
    cpdef bint _all_done(self)
