cimport cython
from shmaccum.accumulator.state.record_batch cimport RecordBatch, batch_in
from shmaccum.shm.locks cimport SlabLock
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _LANE_GENERATION
cdef int _LEASE_SHIFT
cdef Py_ssize_t _LANE_PRODUCER_ID
cdef Py_ssize_t _LANE_ERROR
cdef Py_ssize_t _HEAD
cdef Py_ssize_t _TAIL
cdef Py_ssize_t _QUEUED
cdef Py_ssize_t _STATE_WORD
cdef Py_ssize_t _PARTITION
cdef Py_ssize_t _POSITION
cdef Py_ssize_t _PREVIOUS
cdef Py_ssize_t _NEXT
cdef Py_ssize_t _SEALING
cdef unsigned long long _STATE_BITS
cdef unsigned long long _WITHOUT_STATE
cdef unsigned long long _IS_OPEN
cdef unsigned long long _IS_CLOSED
cdef unsigned long long _IN_FLIGHT

@cython.final
cdef class PartitionQueue:
    cdef readonly Py_ssize_t entry
    cdef readonly object topic_partition
    cdef readonly SlabLock lock
    cdef readonly Py_ssize_t head_at
    cdef readonly Py_ssize_t open_at
    cdef readonly Py_ssize_t queued_at
    cdef readonly Py_ssize_t lane
    cdef readonly Py_ssize_t lane_at
    cdef readonly unsigned long long lease_generation
    cdef SlabMemory _memory
    cdef Py_ssize_t _headers_at
    cdef Py_ssize_t _header_words
    cdef object _slab
    cdef object _words
    cdef object _geometry
    cdef Py_ssize_t _at
    cdef unsigned long long _slot_count

    @cython.locals(words=word[::1], at=Py_ssize_t, newer="unsigned long long", failed="unsigned long long")
    cpdef check_lease(self)

    @cython.locals(
        memory=SlabMemory, at=Py_ssize_t, slot="unsigned long long", batch=RecordBatch, header=Py_ssize_t,
        following="unsigned long long",
    )
    cpdef RecordBatch pop_first(self)

    @cython.locals(memory=SlabMemory, header=Py_ssize_t, state="unsigned long long")
    cdef _check_link(self, unsigned long long slot)
