cimport cython
from shmaccum.accumulator.append.pending_batches cimport PendingBatches
from shmaccum.accumulator.state.partition_queue cimport PartitionQueue
from shmaccum.record.v2.fastrecords cimport FastRecords
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _SLOTS
cdef object _APPENDED

@cython.final
cdef class RecordAppender:
    cdef object __weakref__
    cdef readonly object slab
    cdef readonly object format
    cdef readonly object compressor
    cdef readonly PendingBatches pending
    cdef readonly Py_ssize_t slot_size
    cdef readonly Py_ssize_t header_size
    cdef readonly FastRecords fast
    cdef readonly object core
    cdef object _append
    cdef SlabMemory _memory
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef Py_ssize_t _slots_at

    @cython.locals(outcome=tuple)
    cpdef tuple append(
        self, PartitionQueue queue, long long timestamp, bytes body, callback, unsigned long long sizes
    )

    @cython.locals(memory=SlabMemory)
    cpdef list places_of_large(self, Py_ssize_t slot, Py_ssize_t size)
