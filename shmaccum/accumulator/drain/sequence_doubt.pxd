cimport cython
from shmaccum.accumulator.drain.completer cimport BatchCompleter
from shmaccum.accumulator.drain.sequences cimport Sequences
from shmaccum.accumulator.drain.undecided_batches cimport UndecidedBatches
from shmaccum.accumulator.state.record_batch cimport RecordBatch

@cython.final
cdef class SequenceDoubt:
    cdef UndecidedBatches _undecided
    cdef Sequences _sequences
    cdef BatchCompleter _completer
    cdef object _drainer

    cpdef list confirm(self, RecordBatch batch)

    cpdef refute(self, RecordBatch batch, long long now_ms)

    cpdef give_up(self, long long now_ms)
