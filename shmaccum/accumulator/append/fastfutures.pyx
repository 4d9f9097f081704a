"""Creates futures in C: without Python objects for their numbers, untracked by the garbage collector.

In the plain form the constructor is used instead.
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
    # The collector cannot free a cycle of untracked objects, but no future is part of one: see `futures`.
    PyObject_GC_UnTrack(<PyObject *> future)
    return future
