"""Sequence numbers of an idempotent producer, kept in the slab (KIP-98, KIP-360).

The counterpart of the idempotent half of Kafka's ``TransactionManager``. A broker recognizes a batch that comes again
by its number. A batch is numbered at its first drain, and keeps the number over retries and deaths of senders.

Only the sender uses this, in one thread, and alone writes these words, without a lock: the superblock's `producer_id`
and `producer_epoch`, a partition's `next_sequence`, `acked_sequence`, `acked_s` and `held`, a batch's `producer_id` and
`sequence`. After its death `Sequences.recover` completes a half-done numbering; what else is known (`Outstanding`) the
next sender finds out again.

Partitions of a lane have the lane's producer id and epoch, which its holder stores in an empty lane, with the first
two of a partition's words. There is no bump for them: what a bump would mend fails the transaction (`LaneEntry.error`).

The invariants:

* A partition's epoch and next sequence are one word. A number counts only if its producer id is the slab's and its
  epoch the partition's. So one store of a new epoch, with sequence 0, voids all numbers given before: a *bump*.
  Queued batches get new numbers as they are drained.
* A bump needs certainty that the broker has none of the numbered batches. Nothing of the partition may be in flight.
  The first batch must have been refused when no other preceded it, and so must the later ones that the broker can have
  stored. A broker stores no number without the one before it, so it has none of the later batches either.
* Numbered batches that are sent again go one at a time, in order. No batch is numbered while the first unanswered one
  is not, as far as is known, the one that the broker expects next. Hence every batch that a broker can see again is
  among its last five.
* A broker knows these five, but after an unclean shutdown only the last one (``LogLoader.recoverSegment`` takes a
  snapshot of just that). It then answers `OUT_OF_ORDER_SEQUENCE_NUMBER` for the earlier ones, as for a gap. So a
  refused batch is *undecided* while later ones that were sent before remain: if the broker has one of them, it has
  all before it (`shmaccum.accumulator.drain.sequence_doubt`). It is in flight in the slab: only the sender's memory
  shows that it is undecided, so after a death the next sender sends it again, and asks again.
* A broker that does not know a producer id accepts any sequence number (since Kafka 2.5). So nothing follows a
  partition's first batch until that is acknowledged: if it failed, the second would be stored in front of it. A broker
  forgets a producer that was idle for long (``producer.id.expiration.ms``, a day by default). So the first batch after
  five idle minutes travels alone, too, under a new epoch.
* A later batch does not show that the broker has one before it that each answer has refused: a broker that has
  forgotten the producer after all, or whose topic was made again, stores the later one.
* A split batch keeps the numbers that it got as a whole. A record that was never stored uses none of them; unused
  numbers go to the next batch in the end, if that is not numbered yet.

Unlike here, Kafka renumbers batches as soon as one before them has failed, even if they are in flight and stored, and
as soon as the first is refused. Here they are sent again under their old number first.

Four gaps remain, as in Kafka's idempotent producer. A broker can store a request of a connection closed long ago,
after it has answered the same batch on another one. No producer can know that. And it can have a batch, but have
forgotten it by an unclean shutdown, while the batches before and behind have failed in between, by a shorter
``delivery.timeout.ms`` of other producers. Its answer is that for a gap, which there is, so the batch is stored again.
Brokers tell by the timestamps of records how long a producer was idle: with old ones they forget it at any time. The
last one is in `shmaccum.sender.batch_splitter`.

All schedules of small scenarios of it are walked in ``tools/explore/numbering.pxi``.
"""

cdef enum:
    MAX_EPOCH = (1 << 15) - 1
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45  # Kafka's code
    HALF_OF_SEQUENCES = 1 << 30
    IDLE_S = 5 * 60  # after which a broker can have forgotten the producer: far below Kafka's default

cdef enum:
    # What the answers to a batch say.
    PERHAPS_STORED = 0
    NOT_ANSWERED = 1
    NOT_STORED = 2


cdef struct Outstanding:
    # What the sender knows of a partition besides its words. A new sender finds it out again.

    bint is_known
    # Its lane; NULL outside of transactions.
    LaneEntry *lane
    # In order, the few batches that are numbered and neither acknowledged nor failed: slots + 1, 0 for none.
    uint64_t first
    uint64_t last
    # Slot + 1 of the first of them if it already was the first when it was last sent, else 0.
    uint64_t alone
    # Whether the broker then answered that it does not follow what is stored.
    bint refused
    # Whether one of the batches may be back in the deque.
    bint returned
    # The undecided ones, in the same way, and how many. One that expires is no longer among the first ones.
    uint64_t undecided
    uint64_t last_undecided
    uint64_t undecided_count
    # The partition's `acked_sequence` when `renew_idle` last looked.
    uint64_t seen


@cython.final
@cython.no_gc
cdef class Sequences:
    """The producer id of a slab, and the sequence numbers of its partitions.

    Args:
        segment: the slab.
        enabled: ``enable.idempotence``; without it no batch is numbered and nothing is held.

    Attributes:
        lanes_failed: whether any transaction has failed since the caller last set this to False.
        undecided_count: number of undecided batches.
    """

    cdef Segment segment
    cdef Deques deques
    cdef bint enabled
    cdef bint id_is_spent
    cdef uint64_t looked_s
    """When `renew_idle` last looked."""
    cdef public bint lanes_failed
    cdef readonly Py_ssize_t undecided_count
    cdef Outstanding *partitions
    cdef uint64_t *following
    """By slot: slot + 1 of the next batch of its partition, 0 for none."""
    cdef uint64_t *listed_of
    """By slot: partition entry + 1 whose list it is in, 0 for none."""
    cdef uint64_t *undecided_behind
    """By slot: slot + 1 of the next undecided batch of its partition, 0 for none."""
    cdef uint8_t *answers
    """By slot: what the answers to its batch say. A new sender does not know those to the last one."""

    def __cinit__(self, Segment segment not None, bint enabled):
        self.segment, self.enabled = segment, enabled
        self.deques = deques_of(segment)
        cdef size_t partitions = self.deques.max_partitions, slots = self.deques.slots.slot_count
        self.partitions = <Outstanding *>PyMem_Calloc(partitions, sizeof(Outstanding))
        self.following = <uint64_t *>PyMem_Calloc(slots, sizeof(uint64_t))
        self.listed_of = <uint64_t *>PyMem_Calloc(slots, sizeof(uint64_t))
        self.undecided_behind = <uint64_t *>PyMem_Calloc(slots, sizeof(uint64_t))
        self.answers = <uint8_t *>PyMem_Calloc(slots, 1)
        if not (self.partitions and self.following and self.listed_of and self.undecided_behind and self.answers):
            raise MemoryError(f"no memory for {partitions} partitions and {slots} slots")

    def __dealloc__(self):
        PyMem_Free(self.partitions)
        PyMem_Free(self.following)
        PyMem_Free(self.listed_of)
        PyMem_Free(self.undecided_behind)
        PyMem_Free(self.answers)

    # --- the producer id --------------------------------------------------------------------------

    @property
    def need_producer_id(self):
        """Whether numbering, and so sending, must wait for a producer id."""
        return self.enabled and not load_relaxed(&self.deques.superblock.producer_id)

    def use_producer_id(self, uint64_t producer_id, uint64_t epoch):
        """Number batches under a new producer id from now on; all numbers under an old one are void."""
        self._use_producer_id(producer_id, epoch)

    cdef int _use_producer_id(self, uint64_t producer_id, uint64_t epoch) except -1:
        cdef uint64_t entry
        cdef PartitionEntry *partition
        store_release(&self.deques.superblock.producer_id, 0)
        for entry in range(self.deques.max_partitions):
            partition = partition_of(&self.deques, entry)
            if not load_relaxed(&partition.key) >> KEY_LANE_SHIFT:
                store_relaxed(&partition.next_sequence, epoch << EPOCH_SHIFT)
                store_relaxed(&partition.acked_sequence, epoch << EPOCH_SHIFT)
                store_relaxed(&partition.held, 0)
        store_release(&self.deques.superblock.producer_epoch, epoch)
        store_release(&self.deques.superblock.producer_id, producer_id + 1)
        return self._forget()

    def replace_producer_id(self):
        """Replace the producer id once the outcome of every numbered batch is known.

        Until then no new batch is numbered; numbered ones are sent on.
        """
        self._replace_producer_id()

    # --- the life of a number ---------------------------------------------------------------------

    def drained(self, RecordBatch batch not None):
        """Number a batch that is about to be sent, unless it is numbered.

        One of a lane that its holder has closed meanwhile stays as it is: it must not be sent.
        """
        self._drained(batch)

    cdef int _drained(self, RecordBatch batch) except -1:
        cdef Outstanding *outstanding
        cdef PartitionEntry *partition
        cdef uint64_t producer_id, following, first
        if not self.enabled:
            return 0
        outstanding, partition = self._of(batch.partition), partition_of(&self.deques, batch.partition)
        if not self._is_numbered(batch.header, batch.partition):
            producer_id = load_acquire(self._id_of(outstanding))
            if not producer_id:
                return 0
            following = load_relaxed(&partition.next_sequence)
            number_batch(batch.header, producer_id - 1, following >> EPOCH_SHIFT, following & SEQUENCE_MASK)
            self._set_next(partition, following >> EPOCH_SHIFT, end_sequence_of(batch.header))
            self._append(outstanding, batch.partition, batch.slot)
            self.answers[batch.slot] = NOT_ANSWERED
        first = self._first_to_try(outstanding)
        if first == batch.slot + 1:
            outstanding.alone, outstanding.refused = first, False
        return self._go_on(batch.partition)

    def stored(self, RecordBatch batch not None, uint64_t records):
        """Note that the broker has stored ``records`` more of a batch; before its producers can see that."""
        self._stored(batch, records)

    cdef void _stored(self, RecordBatch batch, uint64_t records) noexcept:
        cdef PartitionEntry *partition = partition_of(&self.deques, batch.partition)
        cdef uint64_t end
        if not self._is_numbered(batch.header, batch.partition):
            return
        end = next_sequence(part_sequence_of(batch.header), records)
        if 0 < (end - self._acked(partition) & LAST_SEQUENCE) < HALF_OF_SEQUENCES:
            store_release(
                &partition.acked_sequence, load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT << EPOCH_SHIFT | end
            )
            self._of(batch.partition).refused = False

    def refused(self, RecordBatch batch not None):
        """Note that the broker refused a batch: it does not follow what is stored, or nothing is known before it.

        With another batch in flight that can still change: the batch is sent again, and refused again if it is true.
        """
        self._refused(batch)

    cdef void _refused(self, RecordBatch batch) noexcept:
        if self._is_asked_for_alone(batch):
            self._of(batch.partition).refused = True

    def came_back(self, RecordBatch batch not None, bint was_refused):
        """Note that a batch comes back; ``was_refused`` if the broker certainly did not store it this time."""
        self._came_back(batch, was_refused)

    cdef void _came_back(self, RecordBatch batch, bint was_refused) noexcept:
        self.answers[batch.slot] = NOT_STORED if was_refused and self.answers[batch.slot] else PERHAPS_STORED

    def is_missing(self, RecordBatch batch not None):
        """Return whether the broker certainly does not have a batch that came back."""
        return self._is_missing(batch)

    cdef bint _is_missing(self, RecordBatch batch) noexcept:
        return self.answers[batch.slot] == NOT_STORED

    def is_stored(self, RecordBatch batch not None):
        """Return whether the broker certainly has a batch, because it has a later one."""
        return self._is_stored(batch)

    cdef bint _is_stored(self, RecordBatch batch) noexcept:
        cdef uint64_t acked
        if load_relaxed(&batch.header.part) or not self._is_numbered(batch.header, batch.partition):
            return False
        if self._is_missing(batch):
            return False
        acked = self._acked(partition_of(&self.deques, batch.partition))
        if not acked:
            return False  # of a log without a batch; else 0 would be behind the numbers of the upper half
        return (acked - end_sequence_of(batch.header) & LAST_SEQUENCE) < HALF_OF_SEQUENCES

    def finished(self, RecordBatch batch not None):
        """Note that a batch is acknowledged or has failed; while in flight, the broker can still store a failed one."""
        self._finished(batch)

    cdef int _finished(self, RecordBatch batch) except -1:
        cdef Outstanding *outstanding
        if not self.enabled:
            return 0
        outstanding = self._of(batch.partition)
        if self._remove(batch.slot) and outstanding.alone == batch.slot + 1:
            outstanding.alone, outstanding.refused = 0, False
        return self._go_on(batch.partition)

    def give_back(self, RecordBatch batch not None):
        """Give the numbers that a split batch did not use to the next batch, if that has none yet.

        Idempotent: a sender that died after this has changed the next number.
        """
        self._give_back(batch)

    cdef void _give_back(self, RecordBatch batch) noexcept:
        cdef PartitionEntry *partition = partition_of(&self.deques, batch.partition)
        cdef uint64_t skipped = load_relaxed(&batch.header.completed) >> PROGRESS_SHIFT
        cdef uint64_t end = end_sequence_of(batch.header), following = load_relaxed(&partition.next_sequence)
        if skipped and self._is_numbered(batch.header, batch.partition) and following & SEQUENCE_MASK == end:
            self._set_next(partition, following >> EPOCH_SHIFT, next_sequence(end, 0 - skipped))

    def log_replaced(self, uint64_t entry):
        """Note that a partition's log knows no producer, because its topic was recreated, for example.

        The broker then accepts any number, so the next batch must travel alone, as a partition's first. Numbered
        batches keep their numbers: one of them may be in the new log already. Without any, the epoch is bumped.
        """
        cdef PartitionEntry *partition
        self._check(entry)
        if self.enabled:
            partition = partition_of(&self.deques, entry)
            store_release(
                &partition.acked_sequence, load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT << EPOCH_SHIFT
            )
            self._review(entry)

    def renew_idle(self, uint64_t count, uint64_t now_s):
        """Begin the numbers of idle partitions anew: the broker can have forgotten the producer.

        Call it before batches are drained, at least once in a minute of activity.

        Args:
            count: number of partitions.
            now_s: wall-clock seconds. If that clock jumps, numbers begin anew too early.
        """
        self._renew_idle(count, now_s)

    cdef int _renew_idle(self, uint64_t count, uint64_t now_s) except -1:
        cdef uint64_t entry, acked, epoch
        cdef PartitionEntry *partition
        cdef Outstanding *outstanding
        for entry in range(min(count, self.deques.max_partitions)):
            partition, outstanding = partition_of(&self.deques, entry), self._of(entry)
            acked = load_relaxed(&partition.acked_sequence)
            if outstanding.seen != acked:
                outstanding.seen = acked
                store_relaxed(&partition.acked_s, self.looked_s)  # or later: this look can be the first for a day
            if outstanding.lane == NULL and not outstanding.first and self._is_known(entry):
                if not load_relaxed(&partition.in_flight) and now_s - load_relaxed(&partition.acked_s) >= IDLE_S:
                    epoch = load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT
                    store_release(&partition.acked_sequence, epoch << EPOCH_SHIFT)
                    if epoch < MAX_EPOCH:
                        self._set_next(partition, epoch + 1, 0)
                    self._review(entry)
        self.looked_s = now_s
        return 0

    def recover(self, list held not None, uint64_t count):
        """Recover from the last sender's death.

        Args:
            held: all batches of the slab by position, those in flight put back.
            count: number of partitions.
        """
        self._recover(held, count)

    cdef int _recover(self, list held, uint64_t count) except -1:
        cdef RecordBatch batch
        cdef PartitionEntry *partition
        cdef uint64_t entry, epoch
        if not self.enabled:
            return 0
        self._forget()
        for batch in held:
            if not self._is_numbered(batch.header, batch.partition):
                continue
            partition = partition_of(&self.deques, batch.partition)
            epoch = load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT
            if load_relaxed(&partition.next_sequence) == (epoch << EPOCH_SHIFT | part_sequence_of(batch.header)):
                # A death between the two stores of `drained`.
                self._set_next(partition, epoch, end_sequence_of(batch.header))
            self._append(self._of(batch.partition), batch.partition, batch.slot)
        for entry in range(min(count, self.deques.max_partitions)):
            self._of(entry).seen = load_relaxed(&partition_of(&self.deques, entry).acked_sequence)
            self._review(entry)
        return 0

    # --- undecided batches ------------------------------------------------------------------------

    def can_be_decided(self, RecordBatch batch not None):
        """Return whether batches behind a refused one were sent before, so that their answers can decide it."""
        return self._can_be_decided(batch)

    cdef bint _can_be_decided(self, RecordBatch batch) noexcept:
        cdef Outstanding *outstanding = self._of(batch.partition)
        cdef uint64_t slot = outstanding.first
        cdef bint is_followed = False
        if outstanding.lane != NULL or not self._is_asked_for_alone(batch) or load_relaxed(&batch.header.part):
            return False
        while slot:
            if slot - 1 != batch.slot and not self._is_undecided(batch.partition, slot - 1):
                if load_relaxed(&header_of(&self.deques.slots, slot - 1).part):
                    return False
                is_followed = True
            slot = self.following[slot - 1]
        return is_followed

    def is_unknowable(self, RecordBatch batch not None):
        """Return whether a refused batch can be stored, and nothing is left to say so: it must not be sent again.

        No gap explains why the broker refused it, and batches behind it have failed that were sent: one of them can be
        all that the broker still knows.
        """
        return self._is_unknowable(batch)

    cdef bint _is_unknowable(self, RecordBatch batch) noexcept:
        cdef const Outstanding *outstanding = self._of(batch.partition)
        cdef uint64_t following = load_relaxed(&partition_of(&self.deques, batch.partition).next_sequence)
        if outstanding.lane != NULL or self._is_missing(batch) or not self._is_asked_for_alone(batch):
            return False
        if outstanding.last != batch.slot + 1:
            return False
        if end_sequence_of(batch.header) == following & SEQUENCE_MASK:
            return False
        return self._is_decided(outstanding, batch.partition)

    def suspend(self, RecordBatch batch not None):
        """Make a batch undecided: it stays in flight, and the next one is sent."""
        self._suspend(batch)

    cdef int _suspend(self, RecordBatch batch) except -1:
        cdef Outstanding *outstanding = self._of(batch.partition)
        self.undecided_behind[batch.slot] = 0
        if outstanding.undecided:
            self.undecided_behind[outstanding.last_undecided - 1] = batch.slot + 1
        else:
            outstanding.undecided = batch.slot + 1
        outstanding.last_undecided = batch.slot + 1
        outstanding.undecided_count += 1
        self.undecided_count += 1
        outstanding.alone = 0
        return self._review(batch.partition)

    def take_undecided(self, uint64_t entry):
        """Return the slots of the undecided batches of a partition, in order, and forget that they are."""
        cdef list slots = []
        self._check(entry)
        while self.partitions[entry].undecided:
            slots.append(self._pop_undecided(entry))
        return slots

    cdef uint64_t _pop_undecided(self, uint64_t entry) noexcept:
        """Return the slot of the first undecided batch, of which there is one, and forget that it is."""
        cdef Outstanding *outstanding = &self.partitions[entry]
        cdef uint64_t slot = outstanding.undecided - 1
        outstanding.undecided = self.undecided_behind[slot]
        outstanding.undecided_count -= 1
        self.undecided_count -= 1
        return slot

    def undecided_partitions(self):
        """Return the entries of the partitions with undecided batches."""
        return [entry for entry in range(self.deques.max_partitions) if self.partitions[entry].undecided]

    def is_undecided(self, RecordBatch batch not None):
        """Return whether a batch is undecided."""
        return self._is_undecided(batch.partition, batch.slot)

    def has_more_to_try(self, uint64_t entry):
        """Return whether a partition has numbered batches that are neither complete nor undecided."""
        self._check(entry)
        return self._first_to_try(self._of(entry)) != 0

    # --- lanes ------------------------------------------------------------------------------------

    def fail_lane(self, uint64_t entry, int error):
        """Fail the transaction of a partition's lane, if it has one and no earlier batch has failed.

        Args:
            entry: the partition's.
            error: Kafka's code.
        """
        self._check(entry)
        self._fail_lane(self._of(entry), error)

    cpdef bint is_closed(self, RecordBatch batch):
        """Return whether a drained batch belongs to a lane that was closed before the batch got a number."""
        return self._of(batch.partition).lane != NULL and not self._is_numbered(batch.header, batch.partition)

    def review_lanes(self):
        """Review all partitions of lanes, because lanes were opened or closed."""
        cdef uint64_t entry
        for entry in range(self.deques.max_partitions):
            if self.partitions[entry].is_known and self.partitions[entry].lane != NULL:
                self._review(entry)

    # --- what may go on ---------------------------------------------------------------------------

    def review(self, uint64_t entry):
        """Bump a partition's epoch if that is due, and store whether it is held; after any other change of it."""
        self._check(entry)
        self._review(entry)

    cdef int _review(self, uint64_t entry) except -1:
        cdef Outstanding *outstanding = self._of(entry)
        cdef PartitionEntry *partition = partition_of(&self.deques, entry)
        cdef uint64_t slot
        cdef bint returned = False, begins_returned = False, is_first = True
        if not load_relaxed(self._id_of(outstanding)):
            return 0
        if self._leads_nowhere(outstanding, entry):
            self._bump(outstanding, partition)
        slot = outstanding.first
        while slot:
            if not self._is_undecided(entry, slot - 1):
                if load_acquire(&header_of(&self.deques.slots, slot - 1).state) & STATE_MASK == STATE_CLOSED:
                    returned = True
                    begins_returned = begins_returned or is_first
                is_first = False
            slot = self.following[slot - 1]
        outstanding.returned = returned
        store_release(&partition.held, self._is_held(outstanding, entry, returned, begins_returned))
        if self.id_is_spent and self._nothing_is_unknown():
            store_release(&self.deques.superblock.producer_id, 0)
            self._forget()
            self.id_is_spent = False
        return 0

    cdef bint _is_held(
        self, const Outstanding *outstanding, uint64_t entry, bint returned, bint begins_returned
    ) noexcept:
        if outstanding.refused:
            return True  # until nothing is in flight
        if returned:
            return not begins_returned  # the first one must be back in the deque before it is sent again
        if self._number_undecided(entry):
            return True  # until they are decided
        if outstanding.first and not self._is_known(entry):
            return True
        return (self.id_is_spent and outstanding.lane == NULL) or not self._is_decided(outstanding, entry)

    cdef int _go_on(self, uint64_t entry) except -1:
        """Review a partition after a batch of it was sent or answered; skips the work in the usual case."""
        cdef Outstanding *outstanding = self._of(entry)
        if (
            outstanding.returned
            or outstanding.refused
            or self.id_is_spent
            or self._number_undecided(entry)
            or not self._is_decided(outstanding, entry)
        ):
            return self._review(entry)
        if load_relaxed(self._id_of(outstanding)):
            store_release(
                &partition_of(&self.deques, entry).held, outstanding.first != 0 and not self._is_known(entry)
            )
        return 0

    cdef bint _is_asked_for_alone(self, RecordBatch batch) noexcept:
        """Return whether a batch was sent as the first, with none but undecided ones in flight."""
        cdef uint64_t in_flight = load_relaxed(&partition_of(&self.deques, batch.partition).in_flight)
        if self._of(batch.partition).alone != batch.slot + 1:
            return False
        return in_flight == self._number_undecided(batch.partition) + 1

    cdef bint _leads_nowhere(self, const Outstanding *outstanding, uint64_t entry) noexcept:
        """Return whether the broker certainly has none of the queued batches and cannot accept their numbers."""
        if load_relaxed(&partition_of(&self.deques, entry).in_flight):
            return False
        return outstanding.refused if outstanding.first else not self._is_decided(outstanding, entry)

    cdef int _bump(self, Outstanding *outstanding, PartitionEntry *partition) except -1:
        cdef uint64_t epoch = load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT
        cdef word *bumps = &self.deques.superblock.epoch_bumps
        if outstanding.lane != NULL:
            self._fail_lane(outstanding, OUT_OF_ORDER_SEQUENCE_NUMBER)
            return 0
        if epoch >= MAX_EPOCH:
            return self._replace_producer_id()
        self._set_next(partition, epoch + 1, 0)
        store_relaxed(bumps, load_relaxed(bumps) + 1)
        while outstanding.first:
            self._remove(outstanding.first - 1)
        outstanding.alone, outstanding.refused = 0, False
        return 0

    cdef int _replace_producer_id(self) except -1:
        cdef uint64_t entry
        if not self.id_is_spent:
            self.id_is_spent = True
            for entry in range(self.deques.max_partitions):
                if self.partitions[entry].is_known:
                    self._review(entry)
        return 0

    cdef void _fail_lane(self, Outstanding *outstanding, int error) noexcept:
        if outstanding.lane != NULL and not load_relaxed(&outstanding.lane.error):
            store_release(&outstanding.lane.error, LANE_ERROR | <uint64_t>error & 0xFFFF)
            self.lanes_failed = True

    cdef bint _nothing_is_unknown(self) noexcept:
        cdef uint64_t entry
        cdef const Outstanding *outstanding
        for entry in range(self.deques.max_partitions):
            outstanding = &self.partitions[entry]
            if not outstanding.is_known or outstanding.lane != NULL:
                continue
            if load_relaxed(&partition_of(&self.deques, entry).in_flight):
                return False
            if outstanding.first and not outstanding.refused:
                return False
        return True

    # --- words ------------------------------------------------------------------------------------

    cdef int _check(self, uint64_t entry) except -1:
        if entry >= self.deques.max_partitions:
            raise IndexError(f"partition entry {entry} of {self.deques.max_partitions}")
        return 0

    cdef Outstanding *_of(self, uint64_t entry) noexcept:
        cdef Outstanding *outstanding = &self.partitions[entry]
        cdef uint64_t lane
        if not outstanding.is_known:
            lane = load_relaxed(&partition_of(&self.deques, entry).key) >> KEY_LANE_SHIFT
            outstanding.is_known = True
            if 0 < lane <= self.deques.max_lanes:
                outstanding.lane = <LaneEntry *>self.deques.lanes + (lane - 1)
        return outstanding

    cdef const word *_id_of(self, const Outstanding *outstanding) noexcept:
        """Return the word of a partition's producer id."""
        return &self.deques.superblock.producer_id if outstanding.lane == NULL else &outstanding.lane.producer_id

    cdef bint _is_numbered(self, const SlotHeader *header, uint64_t entry) noexcept:
        cdef uint64_t number = load_relaxed(&header.sequence)
        cdef uint64_t producer_id = load_relaxed(self._id_of(self._of(entry))), following
        if not number or not producer_id or load_relaxed(&header.producer_id) != producer_id:
            return False
        following = load_relaxed(&partition_of(&self.deques, entry).next_sequence)
        return (number >> EPOCH_SHIFT) - 1 == following >> EPOCH_SHIFT

    cdef void _set_next(self, PartitionEntry *partition, uint64_t epoch, uint64_t sequence) noexcept:
        store_release(&partition.next_sequence, epoch << EPOCH_SHIFT | sequence)

    cdef uint64_t _acked(self, const PartitionEntry *partition) noexcept:
        """Return the sequence number that the broker expects next, as far as is known."""
        cdef uint64_t acked = load_relaxed(&partition.acked_sequence)
        if acked >> EPOCH_SHIFT != load_relaxed(&partition.next_sequence) >> EPOCH_SHIFT:
            return 0
        return acked & SEQUENCE_MASK

    cdef bint _is_decided(self, const Outstanding *outstanding, uint64_t entry) noexcept:
        """Return whether the broker expects the first unanswered batch, or else the next one."""
        cdef const PartitionEntry *partition = partition_of(&self.deques, entry)
        cdef uint64_t expected = load_relaxed(&partition.next_sequence) & SEQUENCE_MASK
        if outstanding.first:
            expected = part_sequence_of(header_of(&self.deques.slots, outstanding.first - 1))
        return expected == self._acked(partition)

    cdef bint _is_known(self, uint64_t entry) noexcept:
        """Return whether the broker has acknowledged any batch of this producer id in a partition."""
        return load_relaxed(&partition_of(&self.deques, entry).acked_sequence) & SEQUENCE_MASK != 0

    # --- what is outstanding ----------------------------------------------------------------------

    cdef void _append(self, Outstanding *outstanding, uint64_t entry, uint64_t slot) noexcept:
        self._remove(slot)  # a number that damage has voided
        self.following[slot], self.listed_of[slot] = 0, entry + 1
        if outstanding.last:
            self.following[outstanding.last - 1] = slot + 1
        else:
            outstanding.first = slot + 1
        outstanding.last = slot + 1

    cdef bint _remove(self, uint64_t slot) noexcept:
        """Remove a batch from the list that it is in; return whether it was in one."""
        cdef uint64_t before = 0, each
        cdef Outstanding *outstanding
        if not self.listed_of[slot]:
            return False
        outstanding = &self.partitions[self.listed_of[slot] - 1]
        each = outstanding.first
        while each != slot + 1:
            before, each = each, self.following[each - 1]
        if before:
            self.following[before - 1] = self.following[slot]
        else:
            outstanding.first = self.following[slot]
        if outstanding.last == slot + 1:
            outstanding.last = before
        self.listed_of[slot] = 0
        return True

    cdef uint64_t _first_to_try(self, const Outstanding *outstanding) noexcept:
        """Return slot + 1 of the first numbered batch that is neither complete nor undecided; 0 for none."""
        cdef uint64_t slot = outstanding.first
        while slot and self.undecided_count and self._is_undecided(self.listed_of[slot - 1] - 1, slot - 1):
            slot = self.following[slot - 1]
        return slot

    cdef uint64_t _number_undecided(self, uint64_t entry) noexcept:
        return self.partitions[entry].undecided_count if self.undecided_count else 0

    cdef bint _is_undecided(self, uint64_t entry, uint64_t slot) noexcept:
        cdef uint64_t each = self.partitions[entry].undecided if self.undecided_count else 0
        while each and each != slot + 1:
            each = self.undecided_behind[each - 1]
        return each != 0

    cdef int _forget(self) except -1:
        """Forget all partitions but those of lanes, which have other producer ids."""
        cdef uint64_t entry
        cdef Outstanding *outstanding
        self.undecided_count = 0
        for entry in range(self.deques.max_partitions):
            outstanding = &self.partitions[entry]
            if outstanding.is_known and outstanding.lane == NULL:
                while outstanding.first:
                    self._remove(outstanding.first - 1)
                memset(outstanding, 0, sizeof(Outstanding))
        return 0
