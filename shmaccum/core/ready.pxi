"""The ready check and the drain: which partitions have something to send, and their first batches.

Kafka's ``RecordAccumulator.ready`` and ``drain``. Only the sender calls this, in one thread. To look takes no lock:
only this thread takes batches from the front of a deque, so a first batch stays first. Producers can still close it,
or append to it; `drain_stripe` looks again under the lock.

The sender alone writes the words `leader`, `held`, `muted` and `in_flight` of a partition; a new sender stores them
again. A death in the drain leaves batches in flight, which the next sender puts back.

A large batch that is to be compressed is not chosen at once: other threads compress it first, in private memory
(`shmaccum.accumulator.drain.compression_ahead`). It stays the first of its deque until then, and is closed.
"""

cpdef enum:
    COMPRESSING = 0  # size of what is not compressed yet

cdef enum:
    LARGEST_EXPONENT = 32  # of `shmaccum.kafka.poller`
    QUEUE_TIMES = 0  # which of the sender's histograms
    NOT_LOOKED = -1
    COMPRESSING_LOOK_MS = 100  # between two looks whether it is, if a wake-up is lost


cdef int64_t NEVER_MS = 1LL << 62
cdef double BACKOFF_JITTER = 0.2  # of `shmaccum.kafka.poller`


cdef struct Choice:
    # The first batch of a partition, chosen for a request.
    Candidate batch
    bint is_tried
    bint is_taken


cdef struct Request:
    # What goes into a node's next request.
    Choice *chosen
    uint64_t count
    # Bytes that are left.
    uint64_t room
    # Open batches that may be chosen, and are.
    uint64_t may_leave
    uint64_t growing
    # Slot of the last of these.
    int64_t last_growing
    # The partition with which the next request begins, -1 for any: the first that was left out since it is of another
    # lane; else the one that found no room; else the first whose open batch may not leave.
    int64_t first_left
    # Lane + 1 of all that is chosen; whether batches of others were left out.
    uint64_t lane
    bint others_left
    bint is_full


cdef struct Ahead:
    # The batch of a slot that is compressed before it is drained: its generation, and its bytes then.
    uint64_t generation
    uint64_t size


cdef struct Backoff:
    # ``retry.backoff.ms`` and ``retry.backoff.max.ms``.
    double initial_ms
    double max_ms


cdef int64_t backoff_ms(
    const Backoff *backoff, uint64_t attempts, uint64_t partition, uint64_t position
) noexcept nogil:
    """Return how long a batch waits after its last attempt, given words of its header; 0 before the first.

    The jitter is a hash of these words, so it stays the same until the next attempt.
    """
    cdef uint64_t mixer = 0x9E3779B97F4A7C15ULL  # 2^64 / golden ratio: its products spread adjacent numbers apart
    cdef uint64_t mixed, tries = attempts >> ATTEMPTS_SHIFT
    cdef double wait_ms
    if not tries:
        return 0
    wait_ms = ldexp(backoff.initial_ms, <int>min(tries - 1, <uint64_t>LARGEST_EXPONENT))
    if backoff.max_ms > backoff.initial_ms:
        mixed = (attempts ^ partition ^ position << 32) * mixer
        mixed = (mixed ^ mixed >> 32) * mixer
        wait_ms *= 1 + BACKOFF_JITTER * (2 * <double>(mixed >> 40) / (1 << 24) - 1)
    return <int64_t>min(wait_ms, min(backoff.max_ms, <double>NEVER_MS))


cdef inline bint _is_filling(const Slots *slots, const PartitionEntry *partition, uint64_t slot) noexcept nogil:
    """Return whether a partition's first batch is open and not full; later it never is again."""
    cdef const SlotHeader *header
    if load_relaxed(&partition.queued) > 1 or slot >= slots.slot_count:
        return False
    header = header_of(slots, slot)
    return (
        load_acquire(&header.state) & STATE_MASK == STATE_OPEN
        and load_acquire(&header.commit) >> COMMIT_SIZE_SHIFT < load_relaxed(&header.full)
    )


cdef inline int64_t _linger_left_ms(const SlotHeader *header, uint64_t now_ms) noexcept nogil:
    """Return how long an open batch still lingers; at most 0 if it has lingered."""
    cdef int64_t waited_ms = <int64_t>(now_ms - (load_relaxed(&header.attempts) & TIME_MASK))
    return <int64_t>(load_relaxed(&header.linger) >> LINGER_SHIFT) - max(waited_ms, <int64_t>0)


@cython.final
@cython.no_gc
cdef class ReadyCheck:
    """Finds and takes what the sender can send.

    Args:
        segment: the slab.
        pool: its pool.
        damaged: makes the error for a damage from its description.
        max_in_flight: ``max.in.flight.requests.per.connection``, here per partition.

    Attributes:
        ahead_size: batches of this many bytes are compressed before they are chosen.
        closed: whether everything is sendable at once, because the sender is about to leave.
    """

    cdef Segment segment
    cdef BufferPool pool
    cdef object damaged
    cdef Deques deques
    cdef HistogramEntry *queue_times
    cdef uint64_t max_in_flight
    cdef public uint64_t ahead_size
    cdef public bint closed
    cdef Backoff backoff
    cdef Request request
    cdef int urgent
    """Whether no batch may linger; `NOT_LOOKED` until a ready check has to know."""
    cdef int32_t *leader_epochs
    """By partition entry: the epoch of its known leader, -1 for none."""
    cdef int32_t *sent_epochs
    """By slot: the leader's epoch when this sender last drained the batch there, -1 for none."""
    cdef Ahead *ahead
    """By slot; of another generation than the slot's for a batch that is not compressed ahead."""
    cdef list to_compress
    """Slots of batches that were not chosen for that reason."""
    cdef uint64_t *sent_to
    """By partition entry: the leader to which its last batch was sent, 0 for none."""
    cdef uint8_t *is_behind
    """By partition entry: whether a batch waits to be put back, in front of all others."""
    cdef list behind
    """The partitions of which it is true."""
    cdef uint64_t blocked
    """Bits: the stripes whose lock a stopped process holds."""

    def __cinit__(self, Segment segment not None, BufferPool pool not None, damaged, uint64_t max_in_flight):
        self.segment, self.pool, self.damaged = segment, pool, damaged
        self.deques = deques_of(segment)
        self.queue_times = <HistogramEntry *>(segment.memory + segment.geometry.regions.histograms) + QUEUE_TIMES
        self.max_in_flight = max_in_flight
        self.behind, self.to_compress = [], []
        self.ahead_size = ALL_BITS
        self.urgent = NOT_LOOKED
        cdef size_t partitions = self.deques.max_partitions, slots = self.deques.slots.slot_count
        self.leader_epochs = <int32_t *>PyMem_Malloc(partitions * sizeof(int32_t))
        self.sent_epochs = <int32_t *>PyMem_Malloc(slots * sizeof(int32_t))
        self.ahead = <Ahead *>PyMem_Malloc(slots * sizeof(Ahead))
        self.sent_to = <uint64_t *>PyMem_Calloc(partitions, sizeof(uint64_t))
        self.is_behind = <uint8_t *>PyMem_Calloc(partitions, 1)
        self.request.chosen = <Choice *>PyMem_Calloc(partitions, sizeof(Choice))
        if not (
            self.leader_epochs
            and self.sent_epochs
            and self.ahead
            and self.sent_to
            and self.is_behind
            and self.request.chosen
        ):
            raise MemoryError(f"no memory for {partitions} partitions and {slots} slots")
        memset(self.ahead, 0xFF, slots * sizeof(Ahead))
        memset(self.leader_epochs, 0xFF, partitions * sizeof(int32_t))
        memset(self.sent_epochs, 0xFF, slots * sizeof(int32_t))

    def __dealloc__(self):
        PyMem_Free(self.leader_epochs)
        PyMem_Free(self.sent_epochs)
        PyMem_Free(self.ahead)
        PyMem_Free(self.sent_to)
        PyMem_Free(self.is_behind)
        PyMem_Free(self.request.chosen)

    def set_backoff(self, initial_ms, max_ms):
        """Set ``retry.backoff.ms`` and ``retry.backoff.max.ms``: each wait, without jitter, if that is not larger."""
        self.backoff.initial_ms, self.backoff.max_ms = min(initial_ms, max_ms), max_ms

    def set_leader(self, uint64_t entry, uint64_t leader, int32_t epoch):
        """Store the leader of a partition.

        Args:
            entry: the partition's.
            leader: id of its node + 1; 0 for none.
            epoch: of the leader; -1 if it is unknown.
        """
        self._check(entry)
        store_release(&partition_of(&self.deques, entry).leader, leader)
        self.leader_epochs[entry] = epoch

    def let_move(self, uint64_t entry):
        """Let a partition go to another connection of its broker, though batches are in flight: all are answered."""
        self._check(entry)
        self.sent_to[entry] = 0

    def hold_back(self, uint64_t stripes, list partitions not None):
        """Send nothing of these, from now on.

        Args:
            stripes: those whose lock a stopped process holds, a bit for each.
            partitions: entries of partitions of which a batch waits to be put back.
        """
        cdef uint64_t entry
        for entry in partitions:
            self._check(entry)
        for entry in self.behind:
            self.is_behind[entry] = False
        for entry in partitions:
            self.is_behind[entry] = True
        self.behind, self.blocked = partitions, stripes

    def set_ahead(self, uint64_t slot, uint64_t generation, uint64_t size):
        """Note that a closed batch is compressed, or being so: it is not chosen before.

        Args:
            slot: the batch's.
            generation: likewise.
            size: its bytes, compressed; `COMPRESSING` while it is not.
        """
        if slot >= self.deques.slots.slot_count:
            raise IndexError(f"slot {slot} of {self.deques.slots.slot_count}")
        self.ahead[slot].generation, self.ahead[slot].size = generation, size

    def forget_ahead(self):
        """Compress no batch ahead, from now on."""
        self.ahead_size = ALL_BITS
        memset(self.ahead, 0xFF, self.deques.slots.slot_count * sizeof(Ahead))

    def ready(self, uint64_t now_ms, bint can_number):
        """Look at all partitions.

        Args:
            now_ms: monotonic milliseconds.
            can_number: whether batches can be numbered, so that anything can be sent.

        Returns:
            (leaders of partitions with something to send, leaders of partitions with an open batch that may be sent,
            partitions with batches and no leader, milliseconds to the next change: infinite if there is none).
            A leader is the id of its node + 1.
        """
        cdef set due = set(), growing = set()
        cdef list leaderless = []
        cdef uint64_t entry, head, leader, last_due = 0, last_growing = 0, count = self._partition_count()
        cdef int64_t left_ms, next_ms = NEVER_MS
        cdef PartitionEntry *partition
        self.urgent = NOT_LOOKED
        for entry in range(count):
            partition = partition_of(&self.deques, entry)
            head = load_acquire(&partition.head)
            if not head:
                continue
            leader = load_relaxed(&partition.leader)
            if not leader:
                leaderless.append(entry)
                continue
            if not can_number or not self._may_send(entry):
                continue
            left_ms = self._not_due_ms(entry, head - 1, now_ms)
            if left_ms <= 0:
                if not _is_filling(&self.deques.slots, partition, head - 1):
                    if leader != last_due:
                        due.add(leader)
                        last_due = leader
                    continue
                left_ms = _linger_left_ms(header_of(&self.deques.slots, head - 1), now_ms)
                if left_ms <= 0 or self._is_urgent():
                    if leader != last_growing:
                        growing.add(leader)
                        last_growing = leader
                    continue
            next_ms = min(next_ms, left_ms)
        return due, growing, leaderless, float("inf") if next_ms == NEVER_MS else next_ms

    @property
    def is_urgent(self):
        """Whether no batch may linger: memory is exhausted, a process flushes, or `closed`; as of the last check."""
        return bool(self._is_urgent())

    def choose(self, uint64_t leader, uint64_t begin, uint64_t max_size, uint64_t may_leave, uint64_t now_ms):
        """Choose partitions whose first batch is due, as many as fit into a request, and take these batches.

        Args:
            leader: id of the node + 1.
            begin: partition entry to begin at; those before it come last.
            max_size: bytes of the request, unless its first batch is larger.
            may_leave: how many open batches may be among them.
            now_ms: monotonic milliseconds.

        Returns:
            (stripes whose lock was not free: call `take` for each, the partition to begin at the next time or -1, how
            many open batches were chosen, slot of the last one, slots of batches to compress before they are chosen).
        """
        cdef Request *request = &self.request
        cdef uint64_t count = self._partition_count(), index, to_grow, stripe
        cdef list busy = []
        request.count, request.room, request.may_leave, request.growing = 0, max_size, may_leave, 0
        request.last_growing, request.first_left, request.lane = -1, -1, 0
        request.others_left = request.is_full = False
        self.to_compress = []
        begin = min(begin, count)
        self._choose(leader, begin, count, now_ms)
        self._choose(leader, 0, begin, now_ms)
        # Each can grow until it is taken. The first one is taken whatever its size.
        to_grow = request.room // request.count if request.count else 0
        for index in range(request.count):
            request.chosen[index].batch.size += to_grow
        request.chosen[0].batch.size = ALL_BITS
        for stripe in range(<uint64_t>STRIPES):
            if self._take(stripe) != LOCK_TAKEN:
                busy.append(stripe)
        return busy, request.first_left, request.growing, request.last_growing, self.to_compress

    def take(self, uint64_t stripe):
        """Take the chosen batches of a stripe that are not taken: a section of its lock.

        Returns:
            (status,).
        """
        return (self._take(stripe),)

    def taken(self):
        """Note that the batches that were taken are in flight; return their slots, in the order of the choice."""
        cdef Request *request = &self.request
        cdef PartitionEntry *partition
        cdef SlotHeader *header
        cdef uint64_t index, slot, opened_us, now_us = monotonic_us()
        cdef list slots = []
        for index in range(request.count):
            if not request.chosen[index].is_taken:
                continue
            slot = request.chosen[index].batch.slot
            header = header_of(&self.deques.slots, slot)
            partition = partition_of(&self.deques, request.chosen[index].batch.entry)
            store_release(&partition.in_flight, load_relaxed(&partition.in_flight) + 1)
            self.sent_to[request.chosen[index].batch.entry] = load_relaxed(&partition.leader)
            opened_us = load_relaxed(&header.opened_us)
            if now_us > opened_us and not load_relaxed(&header.attempts) >> ATTEMPTS_SHIFT:
                histogram_count(self.queue_times, now_us - opened_us, 1)
            self.sent_epochs[slot] = self.leader_epochs[request.chosen[index].batch.entry]
            self.ahead[slot].generation = ALL_BITS
            slots.append(slot)
        return slots

    def has_backlog(self):
        """Return whether partitions of which `choose` has just taken batches have more full ones that may be sent.

        Other partitions of the node have nothing, wait for something, or come first the next time. So do those of other
        transactions, of which a request holds only one.
        """
        cdef Request *request = &self.request
        cdef uint64_t index, entry, head
        if request.others_left:
            return True
        for index in range(request.count):
            entry = request.chosen[index].batch.entry
            if not request.chosen[index].is_taken or not self._may_send(entry):
                continue
            head = load_acquire(&partition_of(&self.deques, entry).head)
            if head and not _is_filling(&self.deques.slots, partition_of(&self.deques, entry), head - 1):
                return True
        return False

    cdef uint64_t _partition_count(self) except? 0:
        cdef uint64_t count = load_acquire(&self.deques.superblock.partition_count)
        if count > self.deques.max_partitions:
            raise self.damaged(f"it has {count} partition entries")
        return count

    cdef int _check(self, uint64_t entry) except -1:
        if entry >= self.deques.max_partitions:
            raise IndexError(f"partition entry {entry} of {self.deques.max_partitions}")
        return 0

    cdef bint _may_send(self, uint64_t entry) noexcept:
        """Return whether a partition may have one more batch in flight now."""
        cdef const PartitionEntry *partition = partition_of(&self.deques, entry)
        cdef const LaneEntry *lane_entry
        cdef uint64_t lane
        if load_relaxed(&partition.muted) or load_relaxed(&partition.held):
            return False
        if load_relaxed(&partition.in_flight) >= self.max_in_flight:
            return False
        if load_relaxed(&partition.in_flight) and self._has_moved(entry, load_relaxed(&partition.leader)):
            return False
        lane = load_relaxed(&partition.key) >> KEY_LANE_SHIFT
        if lane:
            lane_entry = <const LaneEntry *>self.deques.lanes + (lane - 1)
            if lane > self.deques.max_lanes or not load_acquire(&lane_entry.producer_id):
                return False
            if load_acquire(&lane_entry.error):
                return False
        return not self.is_behind[entry] and not self.blocked >> entry % STRIPES & 1

    cdef bint _has_moved(self, uint64_t entry, uint64_t leader) noexcept:
        """Return whether a partition has another connection to its broker than its last batch, which it could overtake.

        Another broker need not wait for one that can be silent.
        """
        return leader != self.sent_to[entry] and <uint32_t>leader == <uint32_t>self.sent_to[entry]

    cdef int64_t _not_due_ms(self, uint64_t entry, uint64_t slot, uint64_t now_ms) noexcept:
        """Return how long a first batch still backs off, or is looked at again while it is compressed.

        A damaged slot number counts as due: to take it out is to find the damage.
        """
        cdef SlotHeader *header
        cdef uint64_t attempts
        cdef int64_t waited_ms
        if slot >= self.deques.slots.slot_count:
            return 0
        header = header_of(&self.deques.slots, slot)
        if self._is_ahead(header, slot) and self.ahead[slot].size == COMPRESSING:
            return COMPRESSING_LOOK_MS
        attempts = load_relaxed(&header.attempts)
        if attempts & TIME_MASK > now_ms + AHEAD_MS:
            # Only the sender stores this word once a batch is in its deque.
            attempts = attempts & ~TIME_MASK | now_ms
            store_relaxed(&header.attempts, attempts)
        if not attempts >> ATTEMPTS_SHIFT or 0 <= self.sent_epochs[slot] < self.leader_epochs[entry]:
            return 0  # a new leader: ``hasLeaderChanged`` (KIP-951)
        waited_ms = <int64_t>(now_ms - (attempts & TIME_MASK))
        return backoff_ms(
            &self.backoff, attempts, load_relaxed(&header.partition), load_relaxed(&header.position)
        ) - max(waited_ms, <int64_t>0)

    cdef bint _is_ahead(self, const SlotHeader *header, uint64_t slot) noexcept:
        """Return whether a batch is compressed before it is chosen, or is being so."""
        return self.ahead[slot].generation == load_relaxed(&header.generation)

    cdef bint _must_compress(self, const SlotHeader *header, uint64_t entry, uint64_t slot) noexcept:
        """Return whether a batch is to be compressed before it is chosen."""
        return (
            committed_size(header) >= self.ahead_size
            and load_relaxed(&header.linger) & COMPRESSION_MASK
            and not load_relaxed(&header.part)
            and load_relaxed(&header.partition) == entry
            and not self._is_ahead(header, slot)
        )

    cdef int _is_urgent(self) except -1:
        cdef uint64_t entry
        if self.urgent == NOT_LOOKED:
            self.urgent = self.closed or self.pool.is_exhausted()
            for entry in range(self.segment.geometry.sizes.max_processes):
                if load_relaxed(&process_of(&self.deques, entry).flushing):
                    self.urgent = True
        return self.urgent

    cdef int _choose(self, uint64_t leader, uint64_t entry, uint64_t stop, uint64_t now_ms) except -1:
        """Choose from a range of partition entries."""
        cdef Request *request = &self.request
        cdef const Slots *slots = &self.deques.slots
        cdef const PartitionEntry *partition
        cdef const SlotHeader *header
        cdef uint64_t head, lane, size, needed
        cdef bint is_growing
        cdef int64_t this
        while entry < stop and not request.is_full:
            this = <int64_t>entry
            partition = partition_of(&self.deques, entry)
            entry += 1
            head = load_acquire(&partition.head)
            if not head or load_relaxed(&partition.leader) != leader or not self._may_send(<uint64_t>this):
                continue
            if self._not_due_ms(<uint64_t>this, head - 1, now_ms) > 0:
                continue
            lane = load_relaxed(&partition.key) >> KEY_LANE_SHIFT
            if not request.count:
                request.lane = lane
            elif lane != request.lane:
                if not request.others_left:
                    request.others_left, request.first_left = True, this
                continue
            is_growing = _is_filling(slots, partition, head - 1)
            if is_growing and request.growing >= request.may_leave:
                if request.first_left < 0:
                    request.first_left = this
                continue
            size = needed = 0
            if head <= slots.slot_count:
                header = header_of(slots, head - 1)
                if self._must_compress(header, <uint64_t>this, head - 1):
                    self.to_compress.append(head - 1)
                    continue
                size = committed_size(header)
                needed = self.ahead[head - 1].size if self._is_ahead(header, head - 1) else size
            if needed > request.room and request.count:
                if not request.others_left:
                    request.first_left = this
                request.is_full = True
                return 0
            request.chosen[request.count].batch.entry = <uint64_t>this
            request.chosen[request.count].batch.slot = head - 1
            request.chosen[request.count].batch.size = size
            request.chosen[request.count].is_tried = request.chosen[request.count].is_taken = False
            request.count += 1
            request.room -= min(needed, request.room)
            if is_growing:
                request.growing += 1
                request.last_growing = <int64_t>head - 1
        return 0

    cdef int _take(self, uint64_t stripe) except -1:
        """Take chosen batches of a stripe, `MOST_DRAINED` at a time: producers wait for the lock; return a status."""
        cdef Request *request = &self.request
        cdef Candidate batches[MOST_DRAINED]
        cdef uint64_t places[MOST_DRAINED]
        cdef uint64_t index = 0, count, number, found
        cdef Damage damage
        cdef int status
        while True:
            count = found = 0
            while index < request.count and count < MOST_DRAINED:
                if request.chosen[index].batch.entry % STRIPES == stripe and not request.chosen[index].is_tried:
                    batches[count], places[count] = request.chosen[index].batch, index
                    count += 1
                index += 1
            if not count:
                return LOCK_TAKEN
            damage.kind = SOUND
            status = drain_stripe(&self.deques, ticket_of(self.segment), batches, count, &found, &damage)
            check_deque(self.damaged, batches[0].entry, &damage)
            if status != LOCK_TAKEN:
                return status
            for number in range(count):
                request.chosen[places[number]].is_tried = True
                request.chosen[places[number]].is_taken = found >> number & 1
