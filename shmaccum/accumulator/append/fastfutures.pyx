"""Futures made in C: of numbers that are none of Python's objects, and without the garbage collector's part in them.

Where it is not compiled, the constructor does it.
"""

from cpython.ref cimport PyObject

from shmaccum.accumulator.append.futures cimport FutureRecordMetadata, ProduceRequestResult

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject *)


cpdef FutureRecordMetadata new_future(
    ProduceRequestResult result, Py_ssize_t index, long long timestamp, unsigned long long sizes
):
    """Return what ``FutureRecordMetadata(result, index, timestamp, sizes)`` does."""
    cdef FutureRecordMetadata future = FutureRecordMetadata.__new__(FutureRecordMetadata)
    future._result = result
    future.index = index
    future._timestamp = timestamp
    future._sizes = sizes
    # Of what the collector is not told of it may not free what is part of a cycle, and no future is: see `futures`.
    PyObject_GC_UnTrack(<PyObject *> future)
    return future
