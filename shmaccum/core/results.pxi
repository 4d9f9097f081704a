"""What a process knows of the batches that it contributed to: results by slot, and its completion ring.

It owns `ring_head` of its process entry (``rings.pxi``). All else is memory of the
process; a death leaves nothing. A section may not make Python objects, and nothing may fail
after the store that commits a record. So the result of a batch is made before, and is found in a table by slot; the
record's future is made before, too, and filled in after, with its callback noted: no other thread comes in between.

A batch's result is *expected* first, and *made* by the first commit, under the partition's lock. Whoever expected it in
vain withdraws it.
"""


@cython.final
cdef class Callbacks:
    """Delivery callbacks that have not run yet, in the order in which their records were appended.

    They live here and not in futures or results, which must not lead back to futures.

    Args:
        call: called with a callback and the future of its record, which is complete. It raises nothing but interrupts.

    Attributes:
        is_due: whether batches have had completions since their callbacks last ran.
    """

    cdef object call
    cdef dict waiting
    """By batch: callback, future, callback, future, ...: a tuple for each pair would be one more object a record."""
    cdef object due
    cdef readonly bint is_due
    cdef bint runs
    cdef list running
    """Thread and batch of each call of `run_of` that is under way."""

    def __init__(self, call not None):
        from collections import deque

        self.call, self.waiting, self.due, self.running = call, {}, deque(), []

    def __bool__(self):
        return bool(self.waiting)

    def add(self, uint64_t batch, callback not None, FutureRecordMetadata future not None):
        """Add the callback of a record in a batch."""
        self._add(batch, callback, future)

    cdef int _add(self, uint64_t batch, callback, FutureRecordMetadata future) except -1:
        waiting = self.waiting.get(batch)
        if waiting is None:
            # To make it can collect garbage, and so run code that adds another callback, or reads the completion.
            waiting = self.waiting.setdefault(batch, [])
        (<list>waiting).append(callback)
        (<list>waiting).append(future)
        if future._is_done():
            self.make_due(batch)
        return 0

    def make_due(self, uint64_t batch):
        """Make a batch's callbacks due after one of its completions was read."""
        if batch in self.waiting:
            self.due.append(batch)
            self.is_due = True

    def run(self):
        """Run the callbacks that are due, one thread at a time, for their order; other threads do not wait for it."""
        if self.runs:
            return
        self.runs = True
        try:
            while self.due:
                self.run_of(self.due.popleft())
            self.is_due = False
        finally:
            self.runs = False

    def unfinished(self):
        """Return the batches whose callbacks have not all run."""
        return set(self.waiting).union([batch for _, batch in self.running])

    def run_elsewhere(self, set batches not None):
        """Return whether another thread has yet to run callbacks of some batches, all complete.

        In a callback that is False: they run after it, or can wait for it.
        """
        cdef list running = list(self.running)
        me = PyThread_get_thread_ident()
        if any([thread == me for thread, _ in running]):
            return False
        return not batches.isdisjoint(self.waiting) or any([batch in batches for _, batch in running])

    def run_of(self, uint64_t batch):
        """Run the callbacks of a batch's completed records, each once; an interrupt leaves the other ones due."""
        cdef list running = self.running, waiting
        cdef FutureRecordMetadata future
        cdef Py_ssize_t at = 0
        if batch not in self.waiting:
            return
        call = (PyThread_get_thread_ident(), batch)
        running.append(call)  # before it is no longer among those that wait
        waiting = self.waiting.pop(batch, [])
        try:
            while at < len(waiting):
                callback, future = waiting[at], waiting[at + 1]
                at += 2
                if not future._is_done():
                    self._add(batch, callback, future)
                elif type(callback) is Message:
                    (<Message>callback)._complete(future)
                else:
                    self.call(callback, future)
                    if self.running is not running:
                        break  # in a child that the callback has forked: the others are the parent's
        finally:
            if at < len(waiting) and self.running is running:
                del waiting[:at]
                waiting.extend(self.waiting.get(batch, ()))
                self.waiting[batch] = waiting
                self.make_due(batch)
            running.remove(call)

    def in_flight(self, Reports reports not None):
        """Return a producer's pending messages in their order: what the slab has accepted."""
        cdef list messages = []
        for waiting in list(self.waiting.values()):
            for message in list(waiting)[::2]:
                if type(message) is Message and (<Message>message).is_pending_of(reports):
                    messages.append(message)
        return messages

    def forget(self):
        """Forget all, in a forked child: they are the parent's."""
        self.waiting = {}
        self.running = []
        self.due.clear()
        self.is_due = False
        self.runs = False


cdef struct Contribution:
    # A batch, its generation << BATCH_SLOT_BITS | its slot; 0 for none.
    uint64_t batch
    # Whether this process has contributed to it.
    bint is_made
    # Where this process last wrote in a chain: its batch, the slot, and the slot's place in the chain.
    uint64_t written
    uint64_t last_slot
    uint64_t last_place


cdef enum:
    RESULT_SHIFT = 16
    ERROR_CODE_MASK = 0xFFFF
    RANGE_SHIFT = 32


cdef inline int error_code_of(uint64_t outcome) noexcept nogil:
    """Return the error code of a `SlotHeader.result` word; Kafka's are negative, too."""
    cdef int code = <int>(outcome & ERROR_CODE_MASK)
    return code - 0x10000 if code & 0x8000 else code


cdef uint64_t RANGE_MASK = (1ULL << RANGE_SHIFT) - 1
cdef uint64_t LAST_COMPLETION = (1ULL << 63) - 1


@cython.final
cdef class Contributions:
    """The batches to which this process contributes, by slot, and its completion ring, which tells of their ends.

    Args:
        segment: the slab.
        entry: of this process.
        waiter: weak reference to the object that waits for results.
        call: as of `Callbacks`.
        fail: called with (result, error code, incident) for records that failed; returns what makes their errors.
        damaged: makes the error for a damage from its description.

    Attributes:
        callbacks: of its records.
        results: of the batches that are not complete, by id.
        head: how many completions this process has read.
    """

    cdef Contribution *table
    cdef readonly Callbacks callbacks
    cdef readonly dict results
    cdef readonly uint64_t head
    cdef list by_slot
    cdef Segment segment
    cdef Rings rings
    cdef object waiter
    cdef object fail
    cdef object damaged
    cdef uint64_t slot_count
    cdef uint64_t entry

    def __cinit__(
        self, Segment segment not None, uint64_t entry, waiter not None, call not None, fail not None, damaged not None
    ):
        self.segment, self.waiter, self.fail, self.damaged = segment, waiter, fail, damaged
        self.callbacks = Callbacks(call)
        self.rings = rings_of(segment)
        self.slot_count = segment.geometry.sizes.slot_count
        self.table = <Contribution *>PyMem_Calloc(self.slot_count, sizeof(Contribution))
        if self.table == NULL:
            raise MemoryError
        self.join(entry)

    def __dealloc__(self):
        PyMem_Free(self.table)

    def join(self, uint64_t entry):
        """Become the process of an entry, as at first and in a forked child: forget all."""
        if entry >= self.segment.geometry.sizes.max_processes:
            raise IndexError(f"entry {entry} of {self.segment.geometry.sizes.max_processes}")
        self.entry = entry
        self.head = load_relaxed(&reader_of(&self.rings, entry).ring_head)
        self.callbacks.forget()
        self.results, self.by_slot = {}, [None] * <Py_ssize_t>self.slot_count
        memset(self.table, 0, self.slot_count * sizeof(Contribution))

    # --- contributing -------------------------------------------------------------------------------

    def expect(self, uint64_t batch, topic_partition, uint64_t lane=0):
        """Return the result of a batch that this process is about to append to, made if need be.

        If it does not append, it calls `withdraw`.

        Args:
            batch: its id.
            topic_partition: where it goes.
            lane: that it is in, as its entry + 1; 0 outside of transactions.
        """
        return self._expect(batch, topic_partition, lane)

    cdef ProduceRequestResult _expect(self, uint64_t batch, topic_partition, uint64_t lane):
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        cdef ProduceRequestResult result, made
        if slot >= self.slot_count:
            raise IndexError(f"slot {slot} of {self.slot_count}")
        if self.table[slot].batch == batch:
            return self.results.get(batch)
        made = ProduceRequestResult(topic_partition, batch, self.waiter, lane)
        if self.table[slot].batch != batch and not self.table[slot].is_made:
            self._drop(self.table[slot].batch)  # it has left the slot: it was expected in vain
        # Both make objects, for which CPython 3.11 can collect garbage: a finalizer, or another thread, can have
        # expected the batch meanwhile. Nothing below makes one.
        result = self.results.get(batch)
        if self.table[slot].batch == batch:
            return result
        self.table[slot].is_made = result is not None
        if result is None:
            result = self.results[batch] = made
        self.by_slot[<Py_ssize_t>slot] = result
        self.table[slot].batch = batch
        return result

    def withdraw(self, uint64_t batch):
        """Forget an expected batch, unless this process has appended to it: who waits for its result goes on."""
        if self.is_expected(batch):
            self.forget(batch)

    def is_expected(self, uint64_t batch):
        """Return whether a batch is expected, and this process has not contributed to it yet."""
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        return slot < self.slot_count and self.table[slot].batch == batch and not self.table[slot].is_made

    def forget(self, uint64_t batch):
        """Forget a batch that was not placed: no future has its result."""
        self._clear_slot(batch)
        self._drop(batch)

    def lose(self, uint64_t batch, failure not None):
        """Fail the records of a batch that has left its slot without a completion; return its result, if any."""
        cdef ProduceRequestResult result = self.results.pop(batch, None)
        self._clear_slot(batch)
        if result is not None:
            result.complete(Part(result.completed, -1, -1, failure), 0)
            self.callbacks.make_due(batch)
        return result

    cdef int _clear_slot(self, uint64_t batch) except -1:
        cdef uint64_t slot = batch & (1 << BATCH_SLOT_BITS) - 1
        if slot < self.slot_count and self.table[slot].batch == batch:
            self.table[slot].batch = 0
            self.by_slot[<Py_ssize_t>slot] = None
        return 0

    cdef int _drop(self, uint64_t batch) except -1:
        cdef ProduceRequestResult result = self.results.pop(batch, None)
        if result is not None:
            result.complete(Part(result.completed, -1, -1, None), 0)
        return 0

    # --- listening ----------------------------------------------------------------------------------

    @property
    def tail(self):
        """How many completions there are, read or not."""
        return load_acquire(&self._process().ring_tail)

    @property
    def has_news(self):
        """Whether there is something to read, or to call; True also if this process has to join the slab."""
        return self._has_news()

    cdef bint _has_news(self) noexcept:
        return (
            ticket_of(self.segment) == 0
            or load_relaxed(&reader_of(&self.rings, self.entry).ring_tail) != self.head
            or self.callbacks.is_due
        )

    def read(self):
        """Read all completions: complete their results, and make their callbacks due.

        One thread at a time, but a signal handler can call it in the middle of a call. A completion is popped after it
        has been processed, so an interrupt loses none.

        Raises:
            SlabDamagedError: head and tail of the ring contradict each other.
            ValueError: this process has left the slab.
        """
        cdef ProcessEntry *process = self._process()
        cdef Outcome outcome
        cdef uint64_t index, tail = load_acquire(&process.ring_tail)
        cdef ProduceRequestResult result
        if self.head > tail or tail > LAST_COMPLETION or tail - self.head > self.rings.length:
            raise self.damaged(f"completion ring of {self.rings.length}: head {self.head}, tail {tail}")
        store_release(&process.ring_head, self.head)  # where it is damaged, it looks like unread completions
        while self.head < load_acquire(&process.ring_tail):
            index = self.head
            outcome = ring_at(&self.rings, self.entry, index)
            result = self.results.get(outcome.batch)
            if result is not None:  # else a duplicate, or meant for the process that had this table entry before
                self._complete(result, &outcome)
            self.head = max(self.head, index + 1)  # a signal handler can have popped further meanwhile
            store_release(&process.ring_head, self.head)

    cdef int _complete(self, ProduceRequestResult result, const Outcome *outcome) except -1:
        cdef uint64_t records = outcome.range & RANGE_MASK
        cdef uint64_t rest = outcome.result >> RESULT_SHIFT
        cdef int64_t base_offset = <int64_t>(outcome.base_offset - 1)
        cdef int code = error_code_of(outcome.result)
        failure = self.fail(result, code, rest) if code else None
        append_time_ms = -1 if code else <int64_t>rest - 1
        result.complete(Part(<int64_t>(outcome.range >> RANGE_SHIFT), base_offset, append_time_ms, failure), records)
        self.callbacks.make_due(result.batch)
        if not records:
            self.results.pop(result.batch, None)
            self._clear_slot(result.batch)
        return 0

    cdef ProcessEntry *_process(self) except NULL:
        if ticket_of(self.segment) == 0:
            raise ValueError("this process has left the slab")
        return reader_of(&self.rings, self.entry)


cdef inline bint contributions_make(
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
