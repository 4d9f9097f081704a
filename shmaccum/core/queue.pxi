"""The deque of a partition (Kafka's ``Deque<ProducerBatch>``), for sections under the partition's lock.

A batch is in the deque of its header's partition while its state is OPEN or CLOSED; positions order it. Links, ends and
count are indexes. Only the last batch can be open::

      head                                    tail, open
       │                                         │
       ▼          next ▶                         ▼
    [CLOSED] ◀──────────────▶ [CLOSED] ◀──▶ [OPEN]
                  ◀ previous

The stores of an append, in order; after a death the lock's next holder rebuilds the indexes (`rebuild_stripe`):

========================  =============================================================================================
partition, position       words of a slot that only its owner knows
previous, next            the same
state = OPEN or CLOSED    the batch is in the deque; without it there, the slot is reclaimed
next_position … tail      indexes that lack it
next of the last, head    the same; the sender reads the head without the lock, so it is stored last
========================  =============================================================================================

Modelled in ``tools/model/pool.pml``.
"""

cdef enum:
    STATE_OPEN = 2
    STATE_CLOSED = 3

    LEASE_SHIFT = 40

cdef enum:
    # More kinds of damage.
    WRONG_OPEN = WRONG_QUEUE + 1
    WRONG_LINK


cdef struct Queue:
    # A deque, and the transaction for which it takes records, if any.
    uint64_t entry
    PartitionEntry *partition
    LockLine *line
    LaneEntry *lane
    uint64_t lane_generation


cdef bint _is_leased(const Queue *queue) noexcept nogil:
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
        state = load_relaxed(&header_of(slots, slot).state) & STATE_BITS
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
    store_release(&header_of(slots, slot).state, state & ~<uint64_t>STATE_BITS | STATE_CLOSED)
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
    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_BITS | state)
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


cdef bint deque_has_full(const Slots *slots, const Queue *queue) noexcept nogil:
    """Return whether the first batch is full and its compression, if any, is finished."""
    cdef uint64_t head = load_relaxed(&queue.partition.head)
    if load_relaxed(&queue.partition.queued) <= 1:
        return False
    return not 0 < head <= slots.slot_count or load_relaxed(&header_of(slots, head - 1).sealing) == 0
