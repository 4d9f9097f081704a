"""Repair: what the next holder of a partitions' lock does if the last one died in a section, or found damage.

The slot headers are the truth. For each partition of the lock's stripe, links, ends and count are made from them again,
in the slots themselves, since nothing can be allocated here. A death in between leaves it to the next holder.

All schedules of small scenarios of it are walked in ``tools/explore/batches.pxi``.
"""

cdef enum:
    # More kinds of damage.
    WRONG_ENTRY = WRONG_NEXT + 1  # a batch of no partition
    WRONG_COUNT

    SORTED_RUNS = 32  # runs of 2^i batches: more than there can be slots


cdef struct Stripe:
    # Partitions that share a lock.
    const Deques *deques
    uint64_t number
    uint64_t partition_count


cdef bint _is_placed(
    const Stripe *stripe, const SlotHeader *header, uint64_t *state, uint64_t *partition
) noexcept nogil:
    """Return whether a slot holds a batch of the stripe; load its state and its partition, each once.

    A queued batch stays, under this lock. One that is sent can be completed meanwhile, and the slot be another
    stripe's: what is loaded later is of that.
    """
    state[0] = load_acquire(&header.state) & STATE_MASK
    partition[0] = load_relaxed(&header.partition)
    return state[0] >= STATE_OPEN and partition[0] % STRIPES == stripe.number


cdef bint _are_entries_sound(const Stripe *stripe, Damage *damage) noexcept nogil:
    """Return whether all batches of the stripe are of partitions."""
    cdef const Deques *deques = stripe.deques
    cdef uint64_t slot, state = 0, partition = 0
    for slot in range(deques.slots.slot_count):
        if not _is_placed(stripe, header_of(&deques.slots, slot), &state, &partition):
            continue
        if partition >= stripe.partition_count:
            damage.kind, damage.first, damage.second = WRONG_ENTRY, slot, partition
            return False
    return True


cdef uint64_t _merge(const Slots *slots, uint64_t one, uint64_t other) noexcept nogil:
    """Merge two lists of slots that are in the order of their positions; return the first slot + 1, 0 for none."""
    cdef uint64_t first = 0, last = 0, taken
    while one and other:
        if load_relaxed(&header_of(slots, one - 1).position) <= load_relaxed(&header_of(slots, other - 1).position):
            taken = one
            one = load_relaxed(&header_of(slots, one - 1).next)
        else:
            taken = other
            other = load_relaxed(&header_of(slots, other - 1).next)
        if last:
            store_relaxed(&header_of(slots, last - 1).next, taken)
        else:
            first = taken
        last = taken
    taken = one if one else other
    if last:
        store_relaxed(&header_of(slots, last - 1).next, taken)
        return first
    return taken


cdef uint64_t _sort(const Slots *slots, uint64_t begin) noexcept nogil:
    """Sort a list of slots by position; return its first slot + 1, 0 for none."""
    cdef uint64_t runs[SORTED_RUNS]
    cdef uint64_t slot = begin, following, run, merged = 0
    memset(runs, 0, sizeof(runs))
    while slot:
        following = load_relaxed(&header_of(slots, slot - 1).next)
        store_relaxed(&header_of(slots, slot - 1).next, 0)
        run = 0
        while runs[run]:
            slot = _merge(slots, runs[run], slot)
            runs[run] = 0
            run += 1
        runs[run] = slot
        slot = following
    for run in range(<uint64_t>SORTED_RUNS):
        merged = _merge(slots, runs[run], merged)
    return merged


cdef void _link(const Slots *slots, PartitionEntry *partition, uint64_t begin) noexcept nogil:
    """Make the indexes of a deque from its batches in order. Only the last one can be open."""
    cdef uint64_t slot = begin, before = 0, count = 0, state
    cdef SlotHeader *header
    store_relaxed(&partition.open, 0)
    while slot:
        header = header_of(slots, slot - 1)
        store_relaxed(&header.previous, before)
        before = slot
        count += 1
        slot = load_relaxed(&header.next)
        state = load_relaxed(&header.state)
        if state & STATE_MASK != STATE_OPEN:
            continue
        if slot:
            store_release(&header.state, state & ~<uint64_t>STATE_MASK | STATE_CLOSED)
        else:
            store_relaxed(&partition.open, before)
    store_relaxed(&partition.tail, before)
    store_relaxed(&partition.queued, count)
    store_release(&partition.head, begin)


cdef bint stripe_rebuild(const Deques *deques, uint64_t number, Damage *damage) noexcept nogil:
    """Rebuild the deques of a stripe, under its lock; return whether the headers are sound."""
    cdef Stripe stripe
    cdef const Slots *slots = &deques.slots
    cdef SlotHeader *header
    cdef PartitionEntry *partition
    cdef uint64_t slot, position, state = 0, entry = 0
    stripe.deques, stripe.number = deques, number
    stripe.partition_count = load_acquire(&deques.superblock.partition_count)
    if stripe.partition_count > deques.max_partitions:
        damage.kind, damage.first = WRONG_COUNT, stripe.partition_count
        return False
    if not _are_entries_sound(&stripe, damage):
        return False
    entry = number
    while entry < stripe.partition_count:
        store_relaxed(&partition_of(deques, entry).tail, 0)
        entry += STRIPES
    for slot in range(slots.slot_count):
        header = header_of(slots, slot)
        if not _is_placed(&stripe, header, &state, &entry):
            continue
        if entry >= stripe.partition_count:
            continue  # it was less a moment ago: the word of a broken process
        partition = partition_of(deques, entry)
        position = load_relaxed(&header.position)
        if position >= load_relaxed(&partition.next_position):
            store_relaxed(&partition.next_position, position + 1)
        if state <= STATE_CLOSED:
            store_relaxed(&header.next, load_relaxed(&partition.tail))  # a stack, of which no reader knows
            store_relaxed(&partition.tail, slot + 1)
    entry = number
    while entry < stripe.partition_count:
        partition = partition_of(deques, entry)
        _link(slots, partition, _sort(slots, load_relaxed(&partition.tail)))
        entry += STRIPES
    return True
