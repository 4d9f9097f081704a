cimport cython
from shmaccum.accumulator.drain.completer cimport BatchOutcome, stored_at
from shmaccum.accumulator.drain.sender_accumulator cimport SenderAccumulator
from shmaccum.accumulator.drain.sequence_doubt cimport SequenceDoubt
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.accumulator.state.record_batch cimport RecordBatch
from shmaccum.sender.transport cimport ProduceBatch, ProduceResponse
from shmaccum.shm.memory cimport SlabMemory, word

cdef Py_ssize_t _BYTES_SENT
cdef Py_ssize_t _STATE
cdef Py_ssize_t _PART
cdef unsigned long long _STATE_BITS
cdef unsigned long long _PROGRESS_MASK
cdef unsigned long long _COMPLETING

@cython.final
cdef class ResponseHandler:
    cdef SenderAccumulator _accumulator
    cdef Sequences _sequences
    cdef SequenceDoubt _doubt
    cdef object _limits
    cdef SlabMemory _memory
    cdef object _incidents
    cdef object _transport
    cdef object _splitter
    cdef bint _mutes
    cdef list _batches
    cdef readonly Py_ssize_t in_flight

    cpdef expect(self, RecordBatch batch, ProduceBatch sealed)

    @cython.locals(
        words=word[::1], outcomes=list, out_of_date=set, bytes_sent=Py_ssize_t, response=ProduceResponse,
        produced=ProduceBatch, batch=RecordBatch, stored=bint,
    )
    cpdef handle(self, list responses, long long now_ms)

    @cython.locals(batch=RecordBatch)
    cdef RecordBatch _landed(self, ProduceBatch produced)
