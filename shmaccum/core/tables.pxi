"""The sections that change the topic table, the partition table and the lanes, under the tables' lock.

Readers take no lock (`shmaccum.accumulator.state.partition_map`). So an entry is complete before a count includes it,
and never moves or vanishes. `TopicEntry.changed` is stored before a change of the entry, and the tables' generation
after it. A caller says with `begin` where the entries start that it has not seen yet: only these are searched.

========================  =============================================================================================
words                     who writes them, under the lock
========================  =============================================================================================
topics: state, name       a process that asks for the topic, which adds the entry
topics: refusals          any process; a death between two of their stores leaves a count that is 1 too low
topics: the rest          the sender
partitions: key           the sender; the holder of a lane for the lane's entries
partitions: sequences     the sender, without the lock; the holder of a lane before it opens it
lanes                     the holder; the sender closes the lane of a dead one
========================  =============================================================================================

What a death leaves: a topic without its newest change, which the next sender stores again; partition entries that no
count of a topic includes, which the next change of the topic finds; a closed lane. The next holder of the lock raises
the generation, so that every process looks at what has changed.
"""

cdef enum:
    # More kinds of damage.
    WRONG_TABLES = WRONG_COUNT + 1
    WRONG_LANES

    TOPIC_REQUESTED = 1
    TOPIC_KNOWN = 2
    TOPIC_FAILED = 3

    EPOCH_SHIFT = 32
    NEEDED_SHIFT = 16
    NAME_SIZE = 256
    REASONS = 6


cpdef enum:
    # No entry: every lane has a living holder, or a table is full.
    TABLES_FULL = -1
    # A lane that was without a holder has one now.
    TABLES_STALE = -2


cdef struct TableSet:
    # The tables of a slab.
    Superblock *superblock
    LockLine *line
    TopicEntry *topics
    PartitionEntry *partitions
    LaneEntry *lanes
    Sizes sizes


cdef struct Name:
    const char *text
    uint64_t size


cdef struct TopicNews:
    # The cluster's current state of a topic.
    uint64_t entry
    # Partitions that it has; 0 if it has none or the number is unknown.
    uint64_t partitions
    # Kafka's error code, 16 bits, 0 for none; the partitions then stay, unless there are none.
    uint64_t error
    # The code for partitions that find no room.
    uint64_t no_room
    uint64_t id_high
    uint64_t id_low
    # Whether it answers a request.
    bint answers
    # Partition entries of the topic among those before entry `begin`, which the caller has seen.
    uint64_t known
    uint64_t begin


cdef struct LaneTerms:
    # What a lane is opened with.
    uint64_t producer_id
    uint64_t epoch
    uint64_t version
    uint64_t now_ms


cdef int tables_enter(const TableSet *tables, uint64_t ticket, Damage *damage) noexcept nogil:
    """Take the tables' lock, and finish what its last holder left; return a status."""
    cdef Superblock *superblock = tables.superblock
    cdef uint64_t topics, partitions, lanes
    cdef int status
    if ticket == 0:
        return LOCK_REJOIN
    status = lock_spin(tables.line, NULL, ticket, load_relaxed(&superblock.sender_entry))
    if status == LOCK_BUSY:
        return status
    if status == LOCK_UNFINISHED:
        store_relaxed(&superblock.rebuilds, load_relaxed(&superblock.rebuilds) + 1)
        _raise_generation(tables)
        _raise_lanes_changed(tables)
    topics, partitions = load_relaxed(&superblock.topic_count), load_relaxed(&superblock.partition_count)
    lanes = load_relaxed(&superblock.lane_count)
    if topics > tables.sizes.max_topics or partitions > tables.sizes.max_partitions:
        damage.kind, damage.first, damage.second = WRONG_TABLES, topics, partitions
    elif lanes > tables.sizes.max_lanes:
        damage.kind, damage.first = WRONG_LANES, lanes
    else:
        return LOCK_TAKEN
    lock_release(tables.line, NULL, False)
    return SECTION_DAMAGED


cdef int tables_exit(const TableSet *tables) noexcept nogil:
    lock_release(tables.line, NULL, False)
    return LOCK_TAKEN


cdef void _raise_generation(const TableSet *tables) noexcept nogil:
    """Make every process look at the change."""
    store_release(&tables.superblock.generation, load_relaxed(&tables.superblock.generation) + 1)


cdef void _raise_lanes_changed(const TableSet *tables) noexcept nogil:
    """Make the sender look for lanes that are closed."""
    store_release(&tables.superblock.lanes_changed, load_relaxed(&tables.superblock.lanes_changed) + 1)


cdef bint _is_named(const word *text, const word *size, const Name *name) noexcept nogil:
    return load_acquire(size) == name.size and not memcmp(text, name.text, name.size)


cdef void _set_name(word *text, word *size, const Name *name) noexcept nogil:
    """Store a name; a death in between leaves an empty one."""
    store_release(size, 0)
    copy_bytes(text, name.text, name.size)
    store_release(size, name.size)


# --- topics and partitions ------------------------------------------------------------------------


cdef int64_t _find_topic(const TableSet *tables, const Name *name, uint64_t begin) noexcept nogil:
    cdef uint64_t entry = begin, count = load_relaxed(&tables.superblock.topic_count)
    while entry < count:
        if _is_named(tables.topics[entry].name, &tables.topics[entry].name_length, name):
            return <int64_t>entry
        entry += 1
    return TABLES_FULL


cdef int64_t _find_partition(const TableSet *tables, uint64_t key, uint64_t begin) noexcept nogil:
    cdef uint64_t entry = begin, count = load_relaxed(&tables.superblock.partition_count)
    while entry < count:
        if load_acquire(&tables.partitions[entry].key) == key:
            return <int64_t>entry
        entry += 1
    return TABLES_FULL


cdef int64_t _add_partition(const TableSet *tables, uint64_t key) noexcept nogil:
    """Add an entry, for which there is room."""
    cdef uint64_t entry = load_relaxed(&tables.superblock.partition_count)
    store_release(&tables.partitions[entry].key, key)
    store_release(&tables.superblock.partition_count, entry + 1)
    return <int64_t>entry


cdef int64_t _add_topic(const TableSet *tables, const Name *name) noexcept nogil:
    """Add the entry of a topic whose metadata is asked for, if there is room."""
    cdef uint64_t entry = load_relaxed(&tables.superblock.topic_count)
    cdef TopicEntry *topic = tables.topics + entry
    if entry >= tables.sizes.max_topics:
        return TABLES_FULL
    _set_name(topic.name, &topic.name_length, name)
    store_relaxed(&topic.changed, load_relaxed(&tables.superblock.generation) + 1)
    store_release(&topic.state, TOPIC_REQUESTED)
    store_release(&tables.superblock.topic_count, entry + 1)
    _raise_generation(tables)
    return <int64_t>entry


cdef int request_topic(
    const TableSet *tables, uint64_t ticket, const Name *name, uint64_t begin, int64_t *entry, Damage *damage
) noexcept nogil:
    """Ask the sender for a topic's metadata. Its known partitions stay usable: producers do not look at its state."""
    cdef Superblock *superblock = tables.superblock
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    entry[0] = _find_topic(tables, name, begin)
    if entry[0] >= 0:
        store_release(&tables.topics[entry[0]].state, TOPIC_REQUESTED)
    else:
        entry[0] = _add_topic(tables, name)
    store_release(&superblock.metadata_requests, load_relaxed(&superblock.metadata_requests) + 1)
    return tables_exit(tables)


cdef int update_topic(
    const TableSet *tables, uint64_t ticket, const TopicNews *news, bint *has_room, Damage *damage
) noexcept nogil:
    """Store the cluster's state of a topic; the count of its partitions after all their entries."""
    cdef uint64_t error = news.error, key = news.entry + 1 << KEY_TOPIC_SHIFT, there = news.known, used
    cdef TopicEntry *topic = tables.topics + news.entry
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    while _find_partition(tables, key | there, news.begin) >= 0:
        there += 1
    used = load_relaxed(&tables.superblock.partition_count)
    has_room[0] = error != 0 or news.partitions <= there
    has_room[0] = has_room[0] or news.partitions - there <= tables.sizes.max_partitions - used
    store_release(&topic.changed, load_relaxed(&tables.superblock.generation) + 1)
    if not has_room[0]:
        error = news.no_room
        store_relaxed(&topic.error, news.partitions << NEEDED_SHIFT | error)
    elif error != 0:
        if news.partitions == 0:
            store_release(&topic.partitions, 0)
        store_relaxed(&topic.error, error)
    else:
        while there < news.partitions:
            _add_partition(tables, key | there)
            there += 1
        store_release(&topic.partitions, news.partitions)
        store_relaxed(&topic.error, 0)
        # Last: a sender that takes over before this sees the new topic id again.
        store_relaxed(&topic.id_high, news.id_high)
        store_release(&topic.id_low, news.id_low)
    if news.answers or load_relaxed(&topic.state) != TOPIC_REQUESTED:
        store_release(&topic.state, TOPIC_FAILED if error else TOPIC_KNOWN)
    if news.answers:
        store_release(&topic.answers, load_relaxed(&topic.answers) + 1)
    _raise_generation(tables)
    return tables_exit(tables)


cdef int refuse_calls(
    const TableSet *tables, uint64_t ticket, int64_t entry, uint64_t reason, uint64_t calls, uint64_t error,
    uint64_t now_ms, Damage *damage
) noexcept nogil:
    """Count refused calls, of a topic or, below 0, of none."""
    cdef word *counter = &tables.superblock.refusals if entry < 0 else &tables.topics[entry].refusals[reason]
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    store_relaxed(counter, load_relaxed(counter) + calls)
    if entry >= 0:
        store_relaxed(&tables.topics[entry].refused_error, error)
        store_relaxed(&tables.topics[entry].refused_ms, now_ms)
    return tables_exit(tables)


# --- lanes ----------------------------------------------------------------------------------------


cdef bint _is_lease(const LaneEntry *lane, uint64_t generation) noexcept nogil:
    """Return whether nobody has leased the lane since."""
    return (load_relaxed(&lane.generation) ^ generation) >> LEASE_SHIFT == 0


cdef void _close_lane(const TableSet *tables, LaneEntry *lane, bint release) noexcept nogil:
    """Make the sender fail the batches queued in a lane; with `release`, leave it to the next process.

    The holder last: after a death before that, the sender finds a lane of a dead one.
    """
    store_release(&lane.producer_id, 0)
    _raise_lanes_changed(tables)
    if release:
        store_release(&lane.holder, 0)


cdef int64_t _choose_lane(const TableSet *tables, const Name *name, int64_t unused, uint64_t version) noexcept nogil:
    """Return the lane of a transactional id: its own, else an unused one, else a new one."""
    cdef uint64_t entry, count = load_relaxed(&tables.superblock.lane_count)
    cdef LaneEntry *lane
    for entry in range(count):
        if _is_named(tables.lanes[entry].id, &tables.lanes[entry].id_length, name):
            return <int64_t>entry
    if unused >= 0:
        lane = tables.lanes + unused
        if load_relaxed(&lane.generation) != version:
            return TABLES_STALE
        store_release(&lane.producer_id, 0)
        _set_name(lane.id, &lane.id_length, name)
        return unused
    if count >= tables.sizes.max_lanes:
        return TABLES_FULL
    _set_name(tables.lanes[count].id, &tables.lanes[count].id_length, name)
    store_release(&tables.superblock.lane_count, count + 1)
    return <int64_t>count


cdef int lease_lane(
    const TableSet *tables, uint64_t ticket, const Name *name, int64_t unused, uint64_t version, int64_t *entry,
    uint64_t *generation, Damage *damage
) noexcept nogil:
    """Lease the lane of a transactional id for this process."""
    cdef LaneEntry *lane
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    entry[0] = _choose_lane(tables, name, unused, version)
    if entry[0] >= 0:
        lane = tables.lanes + entry[0]
        generation[0] = (load_relaxed(&lane.generation) >> LEASE_SHIFT) + 1 << LEASE_SHIFT
        store_release(&lane.generation, generation[0])  # first: from here on, the last holder's records are refused
        store_release(&lane.producer_id, 0)
        store_release(&lane.holder, ticket)
        _raise_lanes_changed(tables)
    return tables_exit(tables)


cdef int add_to_lane(
    const TableSet *tables, uint64_t ticket, uint64_t lane, uint64_t of, uint64_t begin, int64_t *entry, Damage *damage
) noexcept nogil:
    """Find or add the entry of a lane for a partition, given that outside of transactions."""
    cdef uint64_t key, count, sequence
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    key = lane + 1 << KEY_LANE_SHIFT | load_relaxed(&tables.partitions[of].key)
    entry[0] = _find_partition(tables, key, begin)
    count = load_relaxed(&tables.superblock.partition_count)
    if entry[0] < 0 and count < tables.sizes.max_partitions:
        # In an open lane, as `open_lane` does it for entries that are there.
        sequence = load_relaxed(&tables.lanes[lane].producer_epoch) << EPOCH_SHIFT
        store_relaxed(&tables.partitions[count].next_sequence, sequence)
        store_relaxed(&tables.partitions[count].acked_sequence, sequence)
        entry[0] = _add_partition(tables, key)
        _raise_generation(tables)
    return tables_exit(tables)


cdef int open_lane(
    const TableSet *tables, uint64_t ticket, uint64_t entry, uint64_t generation, const LaneTerms *terms,
    const uint64_t *partitions, uint64_t count, bint *is_valid, Damage *damage
) noexcept nogil:
    """Open a lane, of which these are the partition entries, for a transaction."""
    cdef LaneEntry *lane = tables.lanes + entry
    cdef PartitionEntry *partition
    cdef uint64_t index, sequence = terms.epoch << EPOCH_SHIFT
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    is_valid[0] = _is_lease(lane, generation)
    if is_valid[0]:
        for index in range(count):
            partition = tables.partitions + partitions[index]
            store_relaxed(&partition.acked_sequence, sequence)
            store_relaxed(&partition.next_sequence, sequence)
        store_release(&lane.error, 0)
        store_relaxed(&lane.producer_epoch, terms.epoch)
        store_relaxed(&lane.version, terms.version)
        store_relaxed(&lane.opened_ms, terms.now_ms)
        store_relaxed(&lane.transaction, load_relaxed(&lane.transaction) + 1)
        store_release(&lane.producer_id, terms.producer_id + 1)
        _raise_lanes_changed(tables)
    return tables_exit(tables)


cdef int end_lane(
    const TableSet *tables, uint64_t ticket, uint64_t entry, uint64_t generation, bint *is_valid, Damage *damage
) noexcept nogil:
    """Make the lane's deques refuse records of this transaction."""
    cdef LaneEntry *lane = tables.lanes + entry
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    is_valid[0] = _is_lease(lane, generation)
    if is_valid[0]:
        store_release(&lane.generation, generation + 1)
    return tables_exit(tables)


cdef int renew_lane(
    const TableSet *tables, uint64_t ticket, uint64_t entry, uint64_t generation, bint *is_valid, Damage *damage
) noexcept nogil:
    """Go on to the next transaction in an open lane, with the same producer id and epoch."""
    cdef LaneEntry *lane = tables.lanes + entry
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    is_valid[0] = _is_lease(lane, generation)
    if is_valid[0]:
        store_release(&lane.transaction, load_relaxed(&lane.transaction) + 1)
    return tables_exit(tables)


cdef int close_lane(
    const TableSet *tables, uint64_t ticket, uint64_t entry, uint64_t generation, bint release, Damage *damage
) noexcept nogil:
    """Close the lane of a lease, unless another process has it."""
    cdef LaneEntry *lane = tables.lanes + entry
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    if _is_lease(lane, generation):
        _close_lane(tables, lane, release)
    return tables_exit(tables)


cdef int take_lane(
    const TableSet *tables, uint64_t ticket, uint64_t entry, uint64_t holder, Damage *damage
) noexcept nogil:
    """Close a lane of a holder that was found dead, if that is still its holder."""
    cdef LaneEntry *lane = tables.lanes + entry
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    if load_relaxed(&lane.holder) == holder:
        _close_lane(tables, lane, True)
    return tables_exit(tables)


cdef int rebuild_tables(const TableSet *tables, uint64_t ticket, Damage *damage) noexcept nogil:
    """Make every process look at the tables. Entries behind the counts do not exist, and the others are whole."""
    cdef int status = tables_enter(tables, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    _raise_generation(tables)
    return tables_exit(tables)


# --- for Python code ------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class Tables:
    """The topics, partitions and lanes of a slab. Each method is one section of the tables' lock.

    The first item of what a section returns is a status, as of `BufferPool`.

    Args:
        segment: the slab.
        damaged: makes the error for a damage from its description.

    Raises:
        SlabDamagedError: each section, if a count is larger than its table.
        IndexError, ValueError: each section, if an argument leads out of a table.
    """

    cdef Segment segment
    cdef object damaged
    cdef TableSet tables

    def __cinit__(self, Segment segment not None, damaged):
        cdef const Regions *regions = &segment.geometry.regions
        self.segment, self.damaged = segment, damaged
        self.tables.superblock = <Superblock *>segment.memory
        self.tables.line = <LockLine *>(segment.memory + regions.locks) + 1
        self.tables.topics = <TopicEntry *>(segment.memory + regions.topics)
        self.tables.partitions = <PartitionEntry *>(segment.memory + regions.partitions)
        self.tables.lanes = <LaneEntry *>(segment.memory + regions.lanes)
        self.tables.sizes = segment.geometry.sizes

    def request(self, bytes name not None, uint64_t begin):
        """Ask the sender, again or for the first time, for a topic's metadata.

        Args:
            name: the topic's.
            begin: its entry if that is known, else the number of entries that the caller has seen.

        Returns:
            (status, the topic's entry, or `TABLES_FULL`).
        """
        cdef int64_t entry = TABLES_FULL
        cdef Damage damage = UNDAMAGED
        cdef Name text = self._name(name)
        status = request_topic(&self.tables, ticket_of(self.segment), &text, begin, &entry, &damage)
        self._check(&damage)
        return status, entry

    def update(
        self,
        uint64_t entry,
        uint32_t partitions,
        uint32_t error,
        topic_id,
        bint answers,
        uint32_t known,
        uint64_t begin,
        uint32_t no_room,
    ):
        """Store the cluster's state of a topic.

        Args:
            entry: the topic's.
            partitions: how many it has; 0 if it has none or the number is unknown.
            error: why it is unknown or 0, as Kafka's code in 16 bits. With an error and a count, the partitions stay.
            topic_id: Kafka's, 128 bits.
            answers: whether this answers a request, or is only a change.
            known: how many partitions of the topic the caller has seen.
            begin: how many partition entries it has seen in all.
            no_room: the code to store if the partitions find no room.

        Returns:
            (status, whether its partitions found room). Without, it has FAILED, and keeps those that it had.
        """
        cdef TopicNews news
        cdef Damage damage = UNDAMAGED
        cdef bint has_room = False
        self._check_entry("topic", entry, self.tables.sizes.max_topics)
        news.entry, news.partitions, news.error, news.no_room = entry, partitions, error & 0xFFFF, no_room & 0xFFFF
        news.id_high, news.id_low = topic_id >> 64, topic_id & ALL_BITS
        news.answers, news.known, news.begin = answers, known, begin
        status = update_topic(&self.tables, ticket_of(self.segment), &news, &has_room, &damage)
        self._check(&damage)
        return status, bool(has_room)

    def refuse(self, int64_t entry, uint64_t reason, uint64_t calls, uint64_t error, uint64_t now_ms):
        """Count refused calls.

        Args:
            entry: the topic's; -1 for none.
            reason: a `Refusal`.
            calls: how many.
            error: Kafka's code of the last one, 16 bits.
            now_ms: wall-clock milliseconds.

        Returns:
            (status,).
        """
        cdef Damage damage = UNDAMAGED
        if entry >= 0:
            self._check_entry("topic", <uint64_t>entry, self.tables.sizes.max_topics)
        self._check_entry("reason", reason, REASONS)
        status = refuse_calls(&self.tables, ticket_of(self.segment), entry, reason, calls, error, now_ms, &damage)
        self._check(&damage)
        return (status,)

    def lease(self, bytes name not None, int64_t unused=-1, uint64_t generation=0):
        """Lease the lane of a transactional id; a process that holds it is fenced.

        Args:
            name: the id.
            unused: a lane without a living holder or a batch, to take if the id has none; -1 for none.
            generation: the generation that it had before the caller looked at it.

        Returns:
            (status, the lane or `TABLES_FULL` or `TABLES_STALE`, the generation of the lease).
        """
        cdef int64_t entry = TABLES_FULL
        cdef uint64_t leased = 0
        cdef Damage damage = UNDAMAGED
        cdef Name text = self._name(name)
        if unused >= 0:
            self._check_lane(<uint64_t>unused)
        status = lease_lane(
            &self.tables, ticket_of(self.segment), &text, unused, generation, &entry, &leased, &damage
        )
        self._check(&damage)
        return status, entry, leased

    def add_to_lane(self, uint64_t lane, uint64_t of, uint64_t begin):
        """Find or add the partition entry of a lane, which the caller holds: no other process adds one.

        Args:
            lane: the lane's entry.
            of: the entry of the same partition outside of transactions.
            begin: how many partition entries the caller has seen.

        Returns:
            (status, the entry or `TABLES_FULL`).
        """
        cdef int64_t entry = TABLES_FULL
        cdef Damage damage = UNDAMAGED
        self._check_lane(lane)
        self._check_entry("partition", of, self.tables.sizes.max_partitions)
        status = add_to_lane(&self.tables, ticket_of(self.segment), lane, of, begin, &entry, &damage)
        self._check(&damage)
        return status, entry

    def open_lane(
        self,
        uint64_t lane,
        uint64_t generation,
        const uint64_t[::1] partitions,
        uint64_t producer_id,
        uint32_t epoch,
        uint64_t version,
        uint64_t now_ms,
    ):
        """Let the sender send what is appended to a lane from now on; the lane is empty.

        Args:
            lane: its entry.
            generation: of the lease.
            partitions: its partition entries.
            producer_id: of the transactional id.
            epoch: of this transaction.
            version: of the transaction protocol, 1 or 2.
            now_ms: wall-clock milliseconds.

        Returns:
            (status, whether the lease is valid).
        """
        cdef LaneTerms terms
        cdef Damage damage = UNDAMAGED
        cdef bint is_valid = False
        cdef uint64_t count = <uint64_t>partitions.shape[0], index
        self._check_lane(lane)
        for index in range(count):
            self._check_entry("partition", partitions[index], self.tables.sizes.max_partitions)
        terms.producer_id, terms.epoch, terms.version, terms.now_ms = producer_id, epoch, version, now_ms
        status = open_lane(
            &self.tables,
            ticket_of(self.segment),
            lane,
            generation,
            &terms,
            &partitions[0] if count else NULL,
            count,
            &is_valid,
            &damage,
        )
        self._check(&damage)
        return status, bool(is_valid)

    def end_transaction(self, uint64_t lane, uint64_t generation):
        """Accept no more records of a lane's transaction: the lease has the next generation now.

        Returns:
            (status, whether the lease is valid).
        """
        cdef Damage damage = UNDAMAGED
        cdef bint is_valid = False
        self._check_lane(lane)
        status = end_lane(&self.tables, ticket_of(self.segment), lane, generation, &is_valid, &damage)
        self._check(&damage)
        return status, bool(is_valid)

    def renew_lane(self, uint64_t lane, uint64_t generation):
        """Go on to the next transaction in the open, empty lane of a lease.

        Returns:
            (status, whether the lease is valid).
        """
        cdef Damage damage = UNDAMAGED
        cdef bint is_valid = False
        self._check_lane(lane)
        status = renew_lane(&self.tables, ticket_of(self.segment), lane, generation, &is_valid, &damage)
        self._check(&damage)
        return status, bool(is_valid)

    def close_lane(self, uint64_t lane, uint64_t generation, bint release):
        """Let the sender fail what is queued in the lane of a lease; with ``release``, leave it to the next process.

        Returns:
            (status,).
        """
        cdef Damage damage = UNDAMAGED
        self._check_lane(lane)
        status = close_lane(&self.tables, ticket_of(self.segment), lane, generation, release, &damage)
        self._check(&damage)
        return (status,)

    def take_lane(self, uint64_t lane, uint64_t holder):
        """Close a lane whose holder, given by its word, was found dead.

        Returns:
            (status,).
        """
        cdef Damage damage = UNDAMAGED
        self._check_lane(lane)
        status = take_lane(&self.tables, ticket_of(self.segment), lane, holder, &damage)
        self._check(&damage)
        return (status,)

    def rebuild(self):
        """Recover from a death within a section.

        Returns:
            (status,).
        """
        cdef Damage damage = UNDAMAGED
        status = rebuild_tables(&self.tables, ticket_of(self.segment), &damage)
        self._check(&damage)
        return (status,)

    cdef Name _name(self, bytes name) except *:
        cdef Name text
        if not 0 < PyBytes_GET_SIZE(name) <= NAME_SIZE:
            raise ValueError(f"a name has 1 to {NAME_SIZE} bytes, not {len(name)}")
        text.text, text.size = PyBytes_AS_STRING(name), <uint64_t>PyBytes_GET_SIZE(name)
        return text

    cdef int _check_entry(self, str what, uint64_t entry, uint64_t count) except -1:
        if entry >= count:
            raise IndexError(f"{what} entry {entry} of {count}")
        return 0

    cdef int _check_lane(self, uint64_t lane) except -1:
        return self._check_entry("lane", lane, self.tables.sizes.max_lanes)

    cdef int _check(self, const Damage *damage) except -1:
        if damage.kind == WRONG_TABLES:
            raise self.damaged(f"it has {damage.first} topic entries and {damage.second} partition entries")
        if damage.kind == WRONG_LANES:
            raise self.damaged(f"it has {damage.first} lanes")
        return 0
