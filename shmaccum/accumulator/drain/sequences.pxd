cimport cython
from shmaccum.accumulator.drain.undecided_batches cimport UndecidedBatches
from shmaccum.accumulator.state.record_batch cimport RecordBatch, next_sequence
from shmaccum.shm.memory cimport SlabMemory

cdef Py_ssize_t _SUPER_PRODUCER_ID
cdef Py_ssize_t _LANE_PRODUCER_ID
cdef Py_ssize_t _NEXT_SEQUENCE
cdef Py_ssize_t _ACKED_SEQUENCE
cdef Py_ssize_t _HELD
cdef Py_ssize_t _SEQUENCE
cdef Py_ssize_t _PRODUCER_ID
cdef Py_ssize_t _PART
cdef int _EPOCH_SHIFT
cdef unsigned long long _SEQUENCE_MASK
cdef long long _LAST_SEQUENCE
cdef long long _HALF_OF_SEQUENCES

@cython.final
cdef class _Outstanding:
    cdef readonly Py_ssize_t entry
    cdef readonly Py_ssize_t at
    cdef readonly Py_ssize_t lane_at
    cdef readonly Py_ssize_t id_at
    cdef public bint returned
    cdef readonly list batches
    cdef public Py_ssize_t alone
    cdef public bint refused

    @cython.locals(index=Py_ssize_t, batch=RecordBatch)
    cdef bint remove(self, Py_ssize_t slot)

@cython.final
cdef class Sequences:
    cdef object _slab
    cdef object _words
    cdef SlabMemory _memory
    cdef object _geometry
    cdef UndecidedBatches _undecided
    cdef bint _enabled
    cdef list _partitions
    cdef bint _id_is_spent
    cdef public bint lanes_failed

    cpdef bint is_numbered(self, RecordBatch batch)

    @cython.locals(memory=SlabMemory, number="unsigned long long")
    cdef bint _is_numbered(self, RecordBatch batch, _Outstanding partition)

    @cython.locals(
        partition=_Outstanding, memory=SlabMemory, at=Py_ssize_t, next_word="unsigned long long",
        epoch="unsigned long long", end="unsigned long long", first=RecordBatch, to_try=list,
        producer_id="unsigned long long",
    )
    cpdef drained(self, RecordBatch batch)

    @cython.locals(
        partition=_Outstanding, memory=SlabMemory, number="unsigned long long", end="long long",
        epoch="unsigned long long",
    )
    cpdef stored(self, RecordBatch batch, long long records)

    @cython.locals(partition=_Outstanding)
    cpdef refused(self, RecordBatch batch)

    @cython.locals(partition=_Outstanding)
    cpdef bint is_closed(self, RecordBatch batch)

    cpdef bint is_stored(self, RecordBatch batch)

    @cython.locals(partition=_Outstanding)
    cpdef finished(self, RecordBatch batch)

    @cython.locals(partition=_Outstanding)
    cpdef review(self, Py_ssize_t entry)

    @cython.locals(undecided=UndecidedBatches)
    cdef list _to_try(self, _Outstanding partition)

    @cython.locals(memory=SlabMemory)
    cdef _go_on(self, Py_ssize_t entry, _Outstanding partition)

    cdef bint _leads_nowhere(self, _Outstanding partition)
    cdef _bump(self, _Outstanding partition)
    cdef bint _is_held(self, _Outstanding partition, list states)

    @cython.locals(
        memory=SlabMemory, first=RecordBatch, expected="unsigned long long", number="unsigned long long"
    )
    cdef bint _is_settled(self, _Outstanding partition)

    cdef bint _is_known(self, _Outstanding partition)

    @cython.locals(partition=_Outstanding)
    cdef bint _nothing_is_unknown(self)

    @cython.locals(partition=_Outstanding)
    cdef _Outstanding _of(self, Py_ssize_t entry)

    @cython.locals(memory=SlabMemory, at=Py_ssize_t, acked="unsigned long long", same_epoch=bint)
    cdef long long _acked(self, _Outstanding partition)
