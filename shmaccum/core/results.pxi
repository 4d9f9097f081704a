"""What a process knows of the batches that it contributed to: results by slot, and futures of records.

All of it is memory of the process; a death leaves nothing. A section may not make Python objects, and nothing may fail
after the store that commits a record. So the result of a batch is made before, and is found in a table by slot; the
record's future is made before, too, and filled in after, with its callback noted: no other thread comes in between.

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


@cython.final
cdef class Callbacks:
    """Delivery callbacks that have not run yet, in the order in which their records were appended.

    They live here and not in futures or results, which must not lead back to futures.

    Args:
        call: called with a callback and the future of its record, which is complete. It raises nothing.

    Attributes:
        due: batches with completions since their callbacks last ran. `poll` looks whether it is empty.
    """

    cdef object call
    cdef dict waiting
    """By batch: callback, future, callback, future, ...: a tuple for each pair would be one more object a record."""
    cdef readonly object due
    cdef bint runs

    def __init__(self, call not None):
        from collections import deque

        self.call, self.waiting, self.due = call, {}, deque()

    def __bool__(self):
        return bool(self.waiting)

    def add(self, uint64_t batch, callback not None, future not None):
        """Add the callback of a record in a batch."""
        self._add(batch, callback, future)

    cdef int _add(self, uint64_t batch, callback, future) except -1:
        waiting = self.waiting.get(batch)
        if waiting is None:
            waiting = self.waiting[batch] = []
        (<list>waiting).append(callback)
        (<list>waiting).append(future)
        return 0

    def told_of(self, uint64_t batch):
        """Make a batch's callbacks due after one of its completions was read."""
        if batch in self.waiting:
            self.due.append(batch)

    def run(self):
        """Run the callbacks that are due, one thread at a time, for their order; other threads do not wait for it."""
        if self.runs:
            return
        self.runs = True
        try:
            while self.due:
                self.run_of(self.due.popleft())
        finally:
            self.runs = False

    def run_of(self, uint64_t batch):
        """Run the callbacks of a batch's completed records, each once."""
        cdef list waiting = self.waiting.pop(batch, None)
        cdef Py_ssize_t at
        if waiting is None:
            return
        for at in range(0, len(waiting), 2):
            callback, future = waiting[at], waiting[at + 1]
            if future.is_done:
                self.call(callback, future)
            else:
                self._add(batch, callback, future)

    def forget(self):
        """Forget all, in a forked child: they are the parent's."""
        self.waiting = {}
        self.due.clear()
        self.runs = False


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
        call: as of `Callbacks`.

    Attributes:
        callbacks: of its records.
    """

    cdef Contribution *table
    cdef readonly Callbacks callbacks
    cdef list results
    cdef uint64_t slot_count
    cdef uint64_t entry

    def __cinit__(self, uint64_t slot_count, uint64_t entry, call not None):
        self.callbacks = Callbacks(call)
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
        self.callbacks.forget()
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
