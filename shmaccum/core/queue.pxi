"""The deque of a partition (Kafka's ``Deque<ProducerBatch>``), for sections under the partition's lock.

A batch is in the deque of its header's partition while its state is OPEN or CLOSED; positions order it. Links, ends and
count are indexes. Only the last batch can be open::

      head                                    tail, open
       │                                         │
       ▼          next ▶                         ▼
    [CLOSED] ◀──────────────▶ [CLOSED] ◀──▶ [OPEN]
                  ◀ previous

The stores of an append, in order; after a death the lock's next holder rebuilds the indexes (`stripe_rebuild`):

========================  =============================================================================================
partition, position       words of a slot that only its owner knows
previous, next            the same
state = OPEN or CLOSED    the batch is in the deque; without it there, the slot is reclaimed
next_position … tail      indexes that lack it
next of the last, head    the same; the sender reads the head without the lock, so it is stored last
========================  =============================================================================================

The sender takes the first batch out by one store of its state (IN_FLIGHT), and puts it back by another (CLOSED). Both
come before the indexes that follow from them. Only the sender does so: without the lock, a first batch stays first.

All schedules of small scenarios of it are walked in ``tools/explore/batches.pxi``.
"""

cdef enum:
    STATE_OPEN = 2
    STATE_CLOSED = 3
    STATE_IN_FLIGHT = 4

    SECTION_DAMAGED = 8  # a status: `Damage` says what is wrong

cdef enum:
    # More kinds of damage.
    WRONG_OPEN = WRONG_QUEUE + 1
    WRONG_LINK
    WRONG_NEXT


cdef struct Deques:
    # All deques of a slab.
    Slots slots
    Superblock *superblock
    char *partitions
    char *locks
    char *lanes
    char *processes
    uint64_t max_partitions
    uint64_t max_lanes
    bint keeps_checksums


cdef struct Queue:
    # A deque, and the transaction for which it takes records, if any.
    uint64_t entry
    PartitionEntry *partition
    LockLine *line
    LaneEntry *lane
    uint64_t lane_generation


cdef Deques deques_of(Segment segment) noexcept:
    cdef Deques deques
    cdef char *memory = segment.memory
    cdef const Regions *regions = &segment.geometry.regions
    deques.slots = slots_of(segment)
    deques.superblock = <Superblock *>memory
    deques.partitions, deques.locks = memory + regions.partitions, memory + regions.locks
    deques.lanes, deques.processes = memory + regions.lanes, memory + regions.processes
    deques.max_partitions = segment.geometry.sizes.max_partitions
    deques.max_lanes = segment.geometry.sizes.max_lanes
    deques.keeps_checksums = segment.geometry.sizes.keeps_checksums
    return deques


cdef inline PartitionEntry *partition_of(const Deques *deques, uint64_t entry) noexcept nogil:
    return <PartitionEntry *>deques.partitions + entry


cdef inline ProcessEntry *process_of(const Deques *deques, uint64_t entry) noexcept nogil:
    return <ProcessEntry *>deques.processes + entry


cdef inline Queue queue_of(const Deques *deques, uint64_t entry) noexcept nogil:
    """Return a deque, whatever it takes records of."""
    cdef Queue queue
    queue.entry = entry
    queue.partition = partition_of(deques, entry)
    queue.line = <LockLine *>deques.locks + 2 + entry % STRIPES
    queue.lane, queue.lane_generation = NULL, 0
    return queue


cdef inline int stripe_enter(const Deques *deques, const Queue *queue, uint64_t ticket, Damage *damage) noexcept nogil:
    """Take a partition's lock, and rebuild what it guards if its last holder did not finish; return a status."""
    cdef int status
    if ticket == 0:
        return LOCK_REJOIN
    status = lock_spin(queue.line, NULL, ticket, load_relaxed(&deques.superblock.sender_entry))
    if status == LOCK_UNFINISHED:
        store_relaxed(&deques.superblock.rebuilds, load_relaxed(&deques.superblock.rebuilds) + 1)
        status = LOCK_TAKEN
        if not stripe_rebuild(deques, queue.entry % STRIPES, damage):
            lock_release(queue.line, NULL, True)
            status = SECTION_DAMAGED
    return status


cdef inline int stripe_exit(const Deques *deques, const Queue *queue, const Damage *damage) noexcept nogil:
    """Release a partition's lock, after a rebuild of what it guards if that was found damaged; return a status.

    The rebuild is not left to the next holder: the sender does not take the lock of a deque that seems to be empty.
    """
    cdef Damage left
    cdef bint sound = damage.kind == SOUND or stripe_rebuild(deques, queue.entry % STRIPES, &left)
    lock_release(queue.line, NULL, not sound)
    return LOCK_TAKEN if damage.kind == SOUND else SECTION_DAMAGED


cdef inline bint _is_leased(const Queue *queue) noexcept nogil:
    """Return whether the deque still takes records of its transaction: see `PartitionQueue.check_lease`."""
    if queue.lane == NULL:
        return True
    return (
        load_acquire(&queue.lane.generation) == queue.lane_generation
        and load_acquire(&queue.lane.producer_id) != 0
        and load_acquire(&queue.lane.error) == 0
    )


cdef bint _is_queued(const Slots *slots, const Queue *queue, uint64_t slot, Damage *damage) noexcept nogil:
    """Return whether a link leads to a batch of this deque."""
    cdef uint64_t state
    if slot < slots.slot_count:
        state = load_relaxed(&header_of(slots, slot).state) & STATE_MASK
        if load_relaxed(&header_of(slots, slot).partition) == queue.entry and STATE_OPEN <= state <= STATE_CLOSED:
            return True
    damage.kind, damage.first = WRONG_LINK, slot
    return False


cdef int64_t deque_close_open(const Slots *slots, const Queue *queue, Damage *damage) noexcept nogil:
    """Close the open batch; return its slot, -1 if none was open."""
    cdef uint64_t state, slot = load_relaxed(&queue.partition.open) - 1
    if slot == ALL_BITS or not _is_queued(slots, queue, slot, damage):
        return -1
    state = load_relaxed(&header_of(slots, slot).state)
    store_release(&header_of(slots, slot).state, state & ~<uint64_t>STATE_MASK | STATE_CLOSED)
    store_release(&queue.partition.open, 0)
    return <int64_t>slot


cdef bint deque_append(
    const Slots *slots, const Queue *queue, uint64_t slot, uint64_t state, Damage *damage
) noexcept nogil:
    """Append the batch of a slot, complete but for its place; no batch is open. Return whether the links are sound."""
    cdef SlotHeader *header = header_of(slots, slot)
    cdef uint64_t position = load_relaxed(&queue.partition.next_position)
    cdef uint64_t tail = load_relaxed(&queue.partition.tail)
    if tail and not _is_queued(slots, queue, tail - 1, damage):
        return False
    store_relaxed(&header.partition, queue.entry)
    store_relaxed(&header.position, position)
    store_relaxed(&header.previous, tail)
    store_relaxed(&header.next, 0)
    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | state)
    store_relaxed(&queue.partition.next_position, position + 1)
    store_release(&queue.partition.tail, slot + 1)
    store_release(&queue.partition.queued, load_relaxed(&queue.partition.queued) + 1)
    if state == STATE_OPEN:
        store_release(&queue.partition.open, slot + 1)
    if tail:
        store_release(&header_of(slots, tail - 1).next, slot + 1)
    else:
        store_release(&queue.partition.head, slot + 1)
    return True


cdef inline bint deque_has_full(const Queue *queue) noexcept nogil:
    """Return whether the first batch is full: another one follows."""
    return load_relaxed(&queue.partition.queued) > 1


cdef int64_t deque_pop_first(const Slots *slots, const Queue *queue, Damage *damage) noexcept nogil:
    """Remove the first batch, of which there is one, so that it is in flight; return its slot, -1 for damage."""
    cdef PartitionEntry *partition = queue.partition
    cdef uint64_t slot = load_relaxed(&partition.head) - 1, following
    cdef SlotHeader *header
    if not _is_queued(slots, queue, slot, damage):
        return -1
    header = header_of(slots, slot)
    following = load_relaxed(&header.next)
    if following > slots.slot_count:
        damage.kind, damage.first, damage.second = WRONG_NEXT, slot, following - 1
        return -1
    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_IN_FLIGHT)
    if load_relaxed(&partition.open) == slot + 1:
        store_release(&partition.open, 0)
    store_release(&partition.head, following)
    if following:
        store_relaxed(&header_of(slots, following - 1).previous, 0)
    else:
        store_relaxed(&partition.tail, 0)
    store_release(&partition.queued, load_relaxed(&partition.queued) - 1)
    return <int64_t>slot


cdef bint deque_put_back(const Slots *slots, const Queue *queue, uint64_t slot, Damage *damage) noexcept nogil:
    """Put a batch that was taken out back in front of all later ones; return whether the links are sound."""
    cdef PartitionEntry *partition = queue.partition
    cdef SlotHeader *header = header_of(slots, slot)
    cdef uint64_t position = load_relaxed(&header.position)
    cdef uint64_t before = 0, behind = load_relaxed(&partition.head), steps = 0
    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_CLOSED)
    while behind and steps < slots.slot_count:  # bounded: damaged links could lead in a circle
        if not _is_queued(slots, queue, behind - 1, damage):
            return False
        if load_relaxed(&header_of(slots, behind - 1).position) > position:
            break
        before, behind, steps = behind, load_relaxed(&header_of(slots, behind - 1).next), steps + 1
    if behind and not _is_queued(slots, queue, behind - 1, damage):
        return False
    store_relaxed(&header.previous, before)
    store_relaxed(&header.next, behind)
    if behind:
        store_relaxed(&header_of(slots, behind - 1).previous, slot + 1)
    else:
        store_relaxed(&partition.tail, slot + 1)
    if before:
        store_release(&header_of(slots, before - 1).next, slot + 1)
    else:
        store_release(&partition.head, slot + 1)
    store_release(&partition.queued, load_relaxed(&partition.queued) + 1)
    return True
