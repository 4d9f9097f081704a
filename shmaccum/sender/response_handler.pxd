cimport cython
from shmaccum.accumulator.drain.completer cimport BatchOutcome, stored_at
from shmaccum.accumulator.drain.sequence_doubt cimport SequenceDoubt
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.sender.transport cimport ProduceBatch, ProduceResponse
from shmaccum.shm.histograms cimport count
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _BYTES_SENT
cdef Py_ssize_t _PARTITION_BYTES_SENT
cdef Py_ssize_t _LARGEST_BATCH
cdef Py_ssize_t _BATCHES_DRAINED
cdef Py_ssize_t _RECORDS_DRAINED
cdef Py_ssize_t _BYTES_DRAINED
cdef Py_ssize_t _COMPRESSION_DRAINED
cdef unsigned long long _WHOLE
cdef Py_ssize_t _STATE
cdef Py_ssize_t _COMMIT
cdef Py_ssize_t _LINGER
cdef Py_ssize_t _OPENED_US
cdef Py_ssize_t _PART
cdef Py_ssize_t _SLOTS
cdef unsigned long long _STATE_BITS
cdef unsigned long long _PROGRESS_MASK
cdef int _SIZE_SHIFT
cdef unsigned long long _COMPRESSION_BITS
cdef unsigned long long _COMPLETING

@cython.final
cdef class ResponseHandler:
    cdef object _accumulator
    cdef Sequences _sequences
    cdef SequenceDoubt _doubt
    cdef object _limits
    cdef SlabMemory _memory
    cdef object _incidents
    cdef unsigned long long _header_size
    cdef object _transport
    cdef object _splitter
    cdef bint _mutes
    cdef list _batches
    cdef Py_ssize_t _delivery_times_at
    cdef Py_ssize_t _record_counts_at
    cdef Py_ssize_t _fills_at
    cdef Py_ssize_t _compressions_at
    cdef readonly Py_ssize_t in_flight

    cpdef expect(self, RecordBatch batch, ProduceBatch sealed)

    @cython.locals(
        words=word[::1], outcomes=list, out_of_date=set, bytes_sent=Py_ssize_t, response=ProduceResponse,
        produced=ProduceBatch, batch=RecordBatch, stored=bint, now_us="unsigned long long",
    )
    cpdef handle(self, list responses, long long now_ms)

    @cython.locals(
        memory=SlabMemory, at=Py_ssize_t, header_size="unsigned long long", sent="unsigned long long",
        size="unsigned long long", ratio="unsigned long long",
    )
    cdef _count_drained(self, RecordBatch batch, ProduceBatch sealed)

    @cython.locals(
        memory=SlabMemory, words=word[::1], at=Py_ssize_t, opened_us="unsigned long long", size="unsigned long long",
        slots="unsigned long long",
    )
    cdef _count(self, RecordBatch batch, ProduceBatch produced, unsigned long long now_us)

    @cython.locals(batch=RecordBatch)
    cdef RecordBatch _landed(self, ProduceBatch produced)
