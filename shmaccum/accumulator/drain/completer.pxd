cimport cython
from shmaccum.accumulator.state.completion_ring cimport RingWriter, pack_result
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.shm.memory cimport SlabMemory, word

cdef unsigned long long _COMPLETING
cdef Py_ssize_t _ALL_BATCHES_FAILED
cdef Py_ssize_t _ALL_RECORDS_FAILED
cdef Py_ssize_t _ALL_BATCHES_SENT
cdef Py_ssize_t _ALL_RECORDS_SENT
cdef Py_ssize_t _FILL_BYTES
cdef Py_ssize_t _CAPACITY_BYTES
cdef Py_ssize_t _IN_FLIGHT
cdef Py_ssize_t _RECORDS_SENT
cdef Py_ssize_t _BATCHES_SENT
cdef Py_ssize_t _RECORDS_FAILED
cdef Py_ssize_t _BATCHES_FAILED
cdef Py_ssize_t _LAST_OFFSET
cdef Py_ssize_t _STATE
cdef Py_ssize_t _GENERATION
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _BASE_OFFSET
cdef Py_ssize_t _RESULT
cdef Py_ssize_t _SETTLED
cdef Py_ssize_t _PART
cdef Py_ssize_t _SLOTS
cdef unsigned long long _STATE_BITS
cdef unsigned long long _COUNT_MASK
cdef int _SIZE_SHIFT
cdef unsigned long long _PROGRESS_MASK
cdef int _BATCH_SLOT_BITS

@cython.final
cdef class BatchOutcome:
    cdef readonly RecordBatch batch
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly object error
    cdef readonly long long end
    cdef readonly unsigned long long incident

@cython.locals(outcome=BatchOutcome)
cpdef BatchOutcome stored_at(RecordBatch batch, long long base_offset, long long append_time_ms, long long end)

@cython.final
cdef class _Tally:
    cdef unsigned long long batches_sent
    cdef unsigned long long records_sent
    cdef unsigned long long batches_failed
    cdef unsigned long long records_failed
    cdef unsigned long long fill_bytes
    cdef unsigned long long slots

@cython.final
cdef class BatchCompleter:
    cdef object _slab
    cdef object _words
    cdef SlabMemory _memory
    cdef object _pool
    cdef object _map
    cdef object _returns
    cdef Sequences _sequences
    cdef object _deferral
    cdef list _to_free
    cdef object _barrier
    cdef RingWriter _rings

    @cython.locals(words=word[::1], batches=list, tally=_Tally, outcome=BatchOutcome, batch=RecordBatch)
    cpdef complete(self, outcomes)

    @cython.locals(words=word[::1], contributors=set, done=list, left=list, batch=RecordBatch)
    cpdef list finish(self, batches, bint again=*)

    @cython.locals(batch=RecordBatch)
    cpdef deallocate(self, batches)

    cpdef retry(self)

    @cython.locals(
        memory=SlabMemory, base_offset="long long", at=Py_ssize_t, partition_at=Py_ssize_t,
        commit="unsigned long long", state="unsigned long long", count="unsigned long long",
        end="unsigned long long", records="unsigned long long", batches="unsigned long long",
        slots="unsigned long long",
    )
    cdef _conclude(self, RecordBatch batch, BatchOutcome outcome, _Tally tally)

    @cython.locals(
        memory=SlabMemory, at=Py_ssize_t, batch_id="unsigned long long", range_word="unsigned long long",
        entry=Py_ssize_t,
    )
    cdef _push(self, RecordBatch batch, set contributors, bint again=*)

    @cython.locals(words=word[::1])
    cdef _count(self, _Tally tally)
