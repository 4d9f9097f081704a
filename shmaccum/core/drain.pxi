"""The sections by which the sender takes batches out of their deques and puts them back, under the partition's lock.

It alone writes which batches of a partition are in flight, without the lock.

A death in a section leaves a deque as of ``queue.pxi`` and ``repair.pxi``. A batch that is taken out stays IN_FLIGHT;
the next sender puts it back.

All schedules of small scenarios of it are walked in ``tools/explore/batches.pxi``.
"""

cpdef enum:
    # How far a stored time can be ahead of the sender's clock; one further ahead counts as now. It comes from another
    # time namespace or is damaged, and would delay its batch by as much.
    AHEAD_MS = 1000
    # Most batches that are taken while a lock is held once: producers wait for that lock.
    MOST_DRAINED = 8


cdef struct Candidate:
    # A batch that the sender has found due, and how large it can be when it is taken.
    uint64_t entry
    uint64_t slot
    uint64_t size


cdef uint64_t committed_size(const SlotHeader *header) noexcept nogil:
    """Return the committed bytes of a batch, including its header's space."""
    return load_acquire(&header.commit) >> COMMIT_SIZE_SHIFT


cdef bint _is_still_due(const Deques *deques, const Candidate *batch) noexcept nogil:
    """Return whether a batch is first and fits: it can have grown until the lock."""
    if load_relaxed(&partition_of(deques, batch.entry).head) != batch.slot + 1:
        return False
    if batch.slot >= deques.slots.slot_count:
        return True  # to take it out is to find the damage
    return committed_size(header_of(&deques.slots, batch.slot)) <= batch.size


cdef int drain_stripe(
    const Deques *deques, uint64_t ticket, const Candidate *batches, uint64_t count, uint64_t *taken, Damage *damage
) noexcept nogil:
    """Take the first batches of partitions that share a lock; set a bit for each that was taken."""
    cdef Queue queue = queue_of(deques, batches[0].entry)
    cdef uint64_t index
    cdef int status = stripe_enter(deques, &queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    for index in range(count):
        queue = queue_of(deques, batches[index].entry)
        if not _is_still_due(deques, &batches[index]):
            continue
        if deque_pop_first(&deques.slots, &queue, damage) < 0:
            break
        taken[0] |= <uint64_t>1 << index
    return stripe_exit(deques, &queue, damage)


cdef int take_first(
    const Deques *deques, const Queue *queue, uint64_t ticket, uint64_t slot, uint64_t limits, bint *taken,
    Damage *damage
) noexcept nogil:
    """Take the first batch of a deque if it is as it was seen, and its lane, if one is given, is not open."""
    cdef int status = stripe_enter(deques, queue, ticket, damage)
    cdef bint is_open
    if status != LOCK_TAKEN:
        return status
    is_open = queue.lane != NULL and load_acquire(&queue.lane.producer_id) != 0 and load_acquire(&queue.lane.error) == 0
    if not is_open and load_relaxed(&queue.partition.head) == slot + 1 and (
        slot >= deques.slots.slot_count or load_relaxed(&header_of(&deques.slots, slot).limits) == limits
    ):
        taken[0] = deque_pop_first(&deques.slots, queue, damage) >= 0
    return stripe_exit(deques, queue, damage)


cdef int close_first(
    const Deques *deques, const Queue *queue, uint64_t ticket, uint64_t slot, Damage *damage
) noexcept nogil:
    """Close the first batch of a deque if it is this one and open."""
    cdef int status = stripe_enter(deques, queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    if load_relaxed(&queue.partition.head) == slot + 1 and load_relaxed(&queue.partition.open) == slot + 1:
        deque_close_open(&deques.slots, queue, damage)
    return stripe_exit(deques, queue, damage)


cdef int put_back(
    const Deques *deques, const Queue *queue, uint64_t ticket, uint64_t slot, Damage *damage
) noexcept nogil:
    """Put a batch that was taken out back in front of all later ones."""
    cdef int status = stripe_enter(deques, queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    deque_put_back(&deques.slots, queue, slot, damage)
    return stripe_exit(deques, queue, damage)


cdef int rebuild_stripe(const Deques *deques, uint64_t number, uint64_t ticket, Damage *damage) noexcept nogil:
    """Rebuild all deques of a stripe, whether they need it or not."""
    cdef Queue queue = queue_of(deques, number)
    cdef int status = stripe_enter(deques, &queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    lock_release(queue.line, NULL, not stripe_rebuild(deques, number, damage))
    return LOCK_TAKEN if damage.kind == SOUND else SECTION_DAMAGED


# --- for Python code ------------------------------------------------------------------------------


cdef int check_deque(damaged, uint64_t entry, const Damage *damage) except -1:
    """Raise the error for what a section has found of a partition's deque, or of those that share its lock."""
    if damage.kind == WRONG_OPEN:
        raise damaged(f"the open batch of partition entry {entry} is in slot {damage.first}")
    if damage.kind == WRONG_LINK:
        raise damaged(f"a link in the deque of partition entry {entry} leads to slot {damage.first}")
    if damage.kind == WRONG_NEXT:
        raise damaged(f"slot {damage.first} links to slot {damage.second} in the deque of partition entry {entry}")
    if damage.kind == WRONG_ENTRY:
        raise damaged(f"slot {damage.first} holds a batch of partition entry {damage.second}")
    if damage.kind == WRONG_COUNT:
        raise damaged(f"it has {damage.first} partition entries")
    return 0


@cython.final
@cython.no_gc
cdef class PartitionDeques:
    """The deques of a slab's partitions, for the sender. Each method is one section, but for two that only look.

    `ReadyCheck` takes batches that are due.

    The first item of what a section returns is a status, as of `BufferPool`.

    Args:
        segment: the slab.
        damaged: makes the error for a damage from its description.

    Raises:
        SlabDamagedError: each section, if the headers contradict themselves. The indexes have been rebuilt if that was
            possible.
    """

    cdef Segment segment
    cdef object damaged
    cdef Deques deques

    def __cinit__(self, Segment segment not None, damaged):
        self.segment, self.damaged, self.deques = segment, damaged, deques_of(segment)

    def take_first(self, uint64_t entry, uint64_t slot, uint64_t limits, uint64_t lane=0):
        """Take the first batch of a partition, if it is still this one.

        Args:
            entry: the partition's.
            slot: the batch's.
            limits: its `SlotHeader.limits`, as seen.
            lane: entry + 1 of a lane; nothing is taken while that is open.

        Returns:
            (status, whether it was taken).
        """
        cdef Queue queue
        cdef Damage damage = UNDAMAGED
        cdef bint taken = False
        _set_queue(&queue, &self.deques, entry, lane, 0)
        status = take_first(&self.deques, &queue, ticket_of(self.segment), slot, limits, &taken, &damage)
        check_deque(self.damaged, entry, &damage)
        return status, bool(taken)

    def close_first(self, uint64_t entry, uint64_t slot):
        """Close the first batch of a partition, if it is this one and open: it gets no more records.

        Returns:
            (status,).
        """
        cdef Queue queue
        cdef Damage damage = UNDAMAGED
        _set_queue(&queue, &self.deques, entry, 0, 0)
        status = close_first(&self.deques, &queue, ticket_of(self.segment), slot, &damage)
        check_deque(self.damaged, entry, &damage)
        return (status,)

    def put_back(self, uint64_t entry, uint64_t slot):
        """Put a batch that was taken out back in front of all later ones.

        Returns:
            (status,).
        """
        cdef Queue queue
        cdef Damage damage = UNDAMAGED
        _set_queue(&queue, &self.deques, entry, 0, 0)
        self._check_slot(slot)
        status = put_back(&self.deques, &queue, ticket_of(self.segment), slot, &damage)
        check_deque(self.damaged, entry, &damage)
        return (status,)

    def slots_in(self, uint64_t first, uint64_t last):
        """Return the slots whose state is one of ``first`` to ``last``. It takes no lock."""
        cdef uint64_t slot
        cdef list found = []
        for slot in range(self.deques.slots.slot_count):
            if first <= load_acquire(&header_of(&self.deques.slots, slot).state) & STATE_MASK <= last:
                found.append(slot)
        return found

    def occupied(self, uint64_t count):
        """Return the partition entries that have batches in their deque, of the first ``count``. It takes no lock."""
        cdef uint64_t entry
        cdef list found = []
        for entry in range(min(count, self.deques.max_partitions)):
            if load_acquire(&partition_of(&self.deques, entry).head):
                found.append(entry)
        return found

    def rebuild(self, uint64_t number):
        """Rebuild the deques of a stripe from the slot headers.

        Returns:
            (status,).
        """
        cdef Damage damage = UNDAMAGED
        if number >= STRIPES:
            raise IndexError(f"stripe {number} of {STRIPES}")
        status = rebuild_stripe(&self.deques, number, ticket_of(self.segment), &damage)
        check_deque(self.damaged, number, &damage)
        return (status,)

    cdef int _check_slot(self, uint64_t slot) except -1:
        if slot >= self.deques.slots.slot_count:
            raise IndexError(f"slot {slot} of {self.deques.slots.slot_count}")
        return 0
