"""The completion of batches: their outcome goes to each contributor once, through its ring (``rings.pxi``).

The result words and the state of a batch in flight are the sender's; no lock guards them. A result counts from the
store of the state COMPLETING on. From there, the sender that stored it and one that takes over after its death do the
same: push the completions that are missing, then free the slots. The counters are stored after the state: a death in
between loses counts.
"""

cdef enum:
    # Which of the sender's histograms.
    DELIVERY_TIMES = 1
    BATCH_RECORDS = 2
    BATCH_FILLS = 3
    COMPRESSIONS = 4


cdef struct Tally:
    # Sums of some outcomes, added to the slab's counters at once.
    uint64_t batches_sent
    uint64_t records_sent
    uint64_t fill_bytes
    uint64_t slots
    uint64_t batches_failed
    uint64_t records_failed


cdef inline void add_to(word *counter, uint64_t value) noexcept nogil:
    store_relaxed(counter, load_relaxed(counter) + value)


@cython.final
@cython.no_gc
cdef class Completer:
    """Completes batches of a slab, and counts what was sent and delivered. The sender's one thread uses it.

    Args:
        segment: the slab.
        sequences: notified of which batches the broker has, and which are complete.
        header_size: bytes that the format reserves in front of a batch's records.
    """

    cdef Segment segment
    cdef Deques deques
    cdef Sequences sequences
    cdef uint64_t header_size
    cdef Rings rings
    cdef HistogramEntry *histograms
    cdef Tally tally

    def __cinit__(self, Segment segment not None, Sequences sequences not None, uint64_t header_size):
        self.segment, self.sequences, self.header_size = segment, sequences, header_size
        self.deques = deques_of(segment)
        self.rings = rings_of(segment)
        self.histograms = <HistogramEntry *>(segment.memory + segment.geometry.regions.histograms)

    def conclude(
        self,
        RecordBatch batch not None,
        int64_t base_offset,
        int64_t append_time_ms,
        uint64_t end=0,
        int error=0,
        uint64_t incident=0,
        bint is_aborted=False,
    ):
        """Store the outcome of a batch in flight, or of its records from the first incomplete one on.

        Args:
            batch: which one.
            base_offset: offset of the first of these records; -1 if it is not known.
            append_time_ms: the broker's log append time; -1 where the log has the records' own time.
            end: the record behind the last one; 0 for all that are left.
            error: code of the error if the broker does not have them.
            incident: number of the incident with the details of the error; 0 for none.
            is_aborted: whether they are dropped with their transaction. As in Kafka, these do not count as failed.
        """
        cdef bint stored = not error
        cdef uint64_t rest = incident if error else <uint64_t>(append_time_ms + 1)
        cdef SlotHeader *header = batch.header
        cdef PartitionEntry *partition = partition_of(&self.deques, batch.partition)
        cdef uint64_t commit = load_acquire(&header.commit), count = count_of(header), records, slots, batches
        end = end if end else count
        records = end - completed_of(header)
        if stored:
            self.sequences.stored(batch, records)
        conclude_batch(
            header, end, <uint64_t>(base_offset + 1), rest << RESULT_SHIFT | <uint64_t>error & ERROR_CODE_MASK
        )
        # Records are counted when their part completes, a batch when its last part does.
        batches = end == count
        if is_aborted:
            return
        if not stored:
            self.tally.batches_failed += batches
            self.tally.records_failed += records
            add_to(&partition.records_failed, records)
            add_to(&partition.batches_failed, batches)
            return
        self.tally.batches_sent += batches
        self.tally.records_sent += records
        slots = load_relaxed(&header.slots)
        if batches:
            self.tally.fill_bytes += commit >> COMMIT_SIZE_SHIFT
            self.tally.slots += slots if slots <= self.deques.slots.slot_count else 0
        add_to(&partition.batches_sent, batches)
        add_to(&partition.records_sent, records)
        if base_offset >= 0:
            store_relaxed(&partition.last_offset, <uint64_t>base_offset + records)

    def land(self, RecordBatch batch not None):
        """Note that a concluded batch is not in flight any more."""
        cdef PartitionEntry *partition = partition_of(&self.deques, batch.partition)
        store_release(&partition.in_flight, load_relaxed(&partition.in_flight) - 1)
        if not load_relaxed(&batch.header.part):
            self.sequences.finished(batch)

    def conclude_stored(
        self, list responses not None, list in_flight not None, uint64_t now_us, set contributors not None
    ):
        """Conclude, count and push batches of which brokers say no more than that they are stored.

        It ends at the first answer that says more, since answers about a partition are to be handled in order.

        Args:
            responses: the answers.
            in_flight: by slot, the batches without an answer.
            now_us: monotonic microseconds.
            contributors: gets the process entries of those that wait for them.

        Returns:
            (the batches, which are to be freed, bytes in them).
        """
        cdef list done = []
        cdef uint64_t size = 0
        cdef ProduceResponse response
        cdef ProduceBatch produced
        cdef RecordBatch batch
        if self.sequences.undecided_count:
            return done, 0
        for response in responses:
            produced = response.batch
            if response.error is not None or produced.slot >= <uint64_t>len(in_flight):
                break
            batch = in_flight[produced.slot]
            if batch is None or load_relaxed(&batch.header.part):
                break
            if load_relaxed(&batch.header.state) & STATE_MASK != STATE_IN_FLIGHT:
                break
            in_flight[produced.slot] = None
            produced.release()
            size += produced.size
            self.count_delivered(batch, produced.size, produced.record_count, now_us)
            self.conclude(batch, response.base_offset, response.log_append_time_ms)
            self.land(batch)
            done.append(batch)
        self.count()
        for batch in done:
            self.push(batch, contributors)
        return done, size

    def count(self):
        """Add what was concluded to the slab's counters."""
        cdef Superblock *superblock = self.deques.superblock
        if self.tally.batches_failed or self.tally.records_failed:
            add_to(&superblock.batches_failed, self.tally.batches_failed)
            add_to(&superblock.records_failed, self.tally.records_failed)
        add_to(&superblock.batches_sent, self.tally.batches_sent)
        add_to(&superblock.records_sent, self.tally.records_sent)
        add_to(&superblock.fill_bytes, self.tally.fill_bytes)
        add_to(&superblock.capacity_bytes, self.tally.slots * self.deques.slots.slot_size)
        memset(&self.tally, 0, sizeof(Tally))

    def push(self, RecordBatch batch not None, set contributors not None, bint again=False):
        """Push a concluded batch's result to all of its contributors, and add them to ``contributors``.

        Args:
            batch: which one.
            contributors: their process entries.
            again: leave out those that an earlier sender has pushed it to.
        """
        cdef uint64_t entry
        rings_push(&self.rings, batch.header, batch.slot, again)
        entry = next_contributor(batch.header, 0, self.rings.count)
        while entry < self.rings.count:
            contributors.add(entry)
            entry = next_contributor(batch.header, entry + 1, self.rings.count)

    def has_room(self, uint64_t entry, uint64_t owed):
        """Return whether a process's ring has room for one more than ``owed`` completions."""
        if entry >= self.segment.geometry.sizes.max_processes:
            raise IndexError(f"process entry {entry} of {self.segment.geometry.sizes.max_processes}")
        return unread_of(&self.rings, entry) + owed < self.rings.length

    # --- statistics -------------------------------------------------------------------------------

    def count_drained(self, RecordBatch batch not None, uint64_t size, uint64_t records):
        """Count a batch, or a part of one, that is given to a request: Kafka's ``updateProduceRequestMetrics``.

        Args:
            batch: which one.
            size: bytes that are sent.
            records: how many.
        """
        cdef PartitionEntry *partition = partition_of(&self.deques, batch.partition)
        cdef uint64_t whole = load_acquire(&batch.header.commit) >> COMMIT_SIZE_SHIFT
        cdef uint64_t ratio = 1000  # of what is not compressed, and of parts
        add_to(&partition.batches_drained, 1)
        add_to(&partition.records_drained, records)
        add_to(&partition.bytes_drained, size)
        if size > load_relaxed(&self.deques.superblock.largest_batch):
            store_relaxed(&self.deques.superblock.largest_batch, size)
        if self.header_size < whole and self.header_size < size and not load_relaxed(&batch.header.part):
            ratio = (size - self.header_size) * 1000 // (whole - self.header_size)
        add_to(&partition.compression_drained, ratio)

    def count_delivered(self, RecordBatch batch not None, uint64_t size, uint64_t records, uint64_t now_us):
        """Count a stored batch, or part of one.

        Args:
            batch: which one.
            size: bytes that were sent.
            records: how many.
            now_us: monotonic microseconds.
        """
        cdef const SlotHeader *header = batch.header
        cdef uint64_t opened_us = load_relaxed(&header.opened_us)
        cdef uint64_t whole = load_acquire(&header.commit) >> COMMIT_SIZE_SHIFT, slots = load_relaxed(&header.slots)
        add_to(&partition_of(&self.deques, batch.partition).bytes_sent, size)
        if now_us > opened_us:
            histogram_count(self.histograms + DELIVERY_TIMES, now_us - opened_us, 1)
        # A damaged number of slots counts for nothing: its product could wrap around to 0.
        if load_relaxed(&header.part) or not whole or not 0 < slots <= self.deques.slots.slot_count:
            return
        histogram_count(self.histograms + BATCH_RECORDS, records, 1)
        histogram_count(self.histograms + BATCH_FILLS, whole * 1000 // (slots * self.deques.slots.slot_size), 1)
        if load_relaxed(&header.linger) & COMPRESSION_MASK:
            histogram_count(self.histograms + COMPRESSIONS, size * 1000 // whole, 1)
