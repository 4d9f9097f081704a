"""What a process knows of the batches that it contributed to: results by slot, and futures of records.

All of it is memory of the process; a death leaves nothing. A section may not make Python objects, and nothing may fail
after the store that commits a record. So the result of a batch is made before, and is found in a table by slot; the
record's future is made before, too, and filled in after.

A batch's result is *expected* first, and *made* by the first commit, under the partition's lock. Whoever expected it in
vain withdraws it.

Modelled in ``tools/model/pool.pml``.
"""


@cython.no_gc  # see `shmaccum.accumulator.append.futures`: no future is part of a cycle
cdef class RecordFuture:
    """The part of a record's future that `Appender` fills in.

    Attributes:
        batch_result: of its batch.
        index: the record's index in its batch.
        timestamp: the record's own.
        sizes: bytes of the serialized key, plus 1, in the upper 32 bits, and of the value in the lower; 0 for a null.
    """

    cdef object __weakref__
    cdef readonly object batch_result
    cdef readonly Py_ssize_t index
    cdef readonly int64_t timestamp
    cdef readonly uint64_t sizes

    def __init__(self, object result, Py_ssize_t index, int64_t timestamp, uint64_t sizes=0):
        self.batch_result = result
        self.index = index
        self.timestamp = timestamp
        self.sizes = sizes

    def __reduce__(self):
        raise TypeError("a future cannot be pickled: it belongs to this process")


cdef struct Contribution:
    # A batch, its generation << BATCH_SLOT_BITS | its slot; 0 for none.
    uint64_t batch
    # Whether this process has contributed to it.
    bint is_made


@cython.final
@cython.no_gc
cdef class Contributions:
    """The batches to which this process contributes, by slot.

    Args:
        slot_count: of the slab.
        entry: of this process.
    """

    cdef Contribution *table
    cdef list results
    cdef uint64_t slot_count
    cdef uint64_t entry

    def __cinit__(self, uint64_t slot_count, uint64_t entry):
        self.slot_count = slot_count
        self.entry = entry
        self.results = [None] * <Py_ssize_t>slot_count
        self.table = <Contribution *>PyMem_Calloc(slot_count, sizeof(Contribution))
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.table)

    def reset(self, uint64_t entry):
        """Forget all, in a forked child with a process entry of its own."""
        self.entry = entry
        self.results = [None] * <Py_ssize_t>self.slot_count
        memset(self.table, 0, self.slot_count * sizeof(Contribution))

    def expect(self, uint64_t batch, result not None, bint is_made=False):
        """Note the result of a batch, before this process appends to it.

        Args:
            batch: its id.
            result: for its records' futures.
            is_made: whether this process has contributed to it already.

        Returns:
            The batch that was expected in the same slot, in vain: it has left the slot. 0 if there was none.
        """
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        cdef uint64_t in_vain = 0
        if slot >= self.slot_count:
            raise IndexError(f"slot {slot} of {self.slot_count}")
        if self.table[slot].batch != batch:
            if not self.table[slot].is_made:
                in_vain = self.table[slot].batch
            self.results[slot] = result
            self.table[slot].batch, self.table[slot].is_made = batch, is_made
        return in_vain

    def withdraw(self, uint64_t batch):
        """Forget a batch to which this process has not contributed; return whether that is so."""
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        if slot >= self.slot_count or self.table[slot].batch != batch or self.table[slot].is_made:
            return False
        self.forget(batch)
        return True

    def is_expected(self, uint64_t batch):
        """Return whether a batch is expected, and this process has not contributed to it yet."""
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        return slot < self.slot_count and self.table[slot].batch == batch and not self.table[slot].is_made

    def forget(self, uint64_t batch):
        """Forget a batch."""
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        if slot < self.slot_count and self.table[slot].batch == batch:
            self.table[slot].batch = 0
            self.results[slot] = None


cdef bint contributions_make(
    Contribution *made, SlotHeader *header, uint64_t batch, uint64_t entry
) noexcept nogil:
    """Contribute to a batch if it is expected; return whether this process has contributed.

    The bit is stored before the commit, so the sender completes no record without seeing its contributor.
    """
    cdef word *bits = <word *>(<char *>header + sizeof(SlotHeader)) + entry // WORD_BITS
    if made.batch != batch:
        return False
    if not made.is_made:
        store_release(bits, load_relaxed(bits) | 1ULL << entry % WORD_BITS)
        made.is_made = True
    return True
