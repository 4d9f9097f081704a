"""Completion rings: a batch's outcome goes to each process with records in it, once, through that process's ring.

Each process has one ring. The sender, a single thread, writes cells and `ring_tail`; the process owns `ring_head`. No
lock is needed. A batch completes as a whole or, after batch splitting, in parts from front to end, one completion
each. A sender that dies before it stores `ring_tail` has pushed nothing; a new sender pushes again what it does not
find there.

A ring cannot overflow. Its length is the slab's slots plus `PARTS_IN_FLIGHT`. Let *unread* be the completions that
the process has not popped, *owed* the batches in slots that it contributed to, and *parts* the parts of split batches
in flight. Then unread + owed + parts never exceeds the length:

* The last completion of a batch turns an owed one into an unread one; any other part turns a part into an unread one.
* The sender sends a part only if there is room for its completion (`Completer.has_room`).
* A process contributes to one more batch only after it has read its ring, when owed + parts fit into the length.
* A concurrent pop only makes unread smaller.

All schedules of small scenarios of it are walked in ``tools/explore/batches.pxi``.
"""

cdef struct Rings:
    # The rings of all processes.
    CompletionCell *cells
    char *processes
    uint64_t length
    uint64_t count


cdef struct Outcome:
    # A cell, as it was read.
    uint64_t batch
    uint64_t base_offset
    uint64_t result
    uint64_t range


cdef inline ProcessEntry *reader_of(const Rings *rings, uint64_t entry) noexcept nogil:
    return <ProcessEntry *>rings.processes + entry


cdef inline CompletionCell *cell_of(const Rings *rings, uint64_t entry, uint64_t index) noexcept nogil:
    return rings.cells + (entry * rings.length + index % rings.length)


cdef Rings rings_of(Segment segment) noexcept:
    cdef Rings rings
    rings.cells = <CompletionCell *>(segment.memory + segment.geometry.regions.rings)
    rings.processes = segment.memory + segment.geometry.regions.processes
    rings.length = segment.geometry.regions.ring_length
    rings.count = segment.geometry.sizes.max_processes
    return rings


cdef inline uint64_t unread_of(const Rings *rings, uint64_t entry) noexcept nogil:
    """Return how many completions a process has not read, at most the ring's length: a dead process reads none."""
    cdef const ProcessEntry *process = reader_of(rings, entry)
    return min(load_relaxed(&process.ring_tail) - load_acquire(&process.ring_head), rings.length)


cdef inline Outcome ring_at(const Rings *rings, uint64_t entry, uint64_t index) noexcept nogil:
    """Return the completion at an index below `ring_tail`, which was read with acquire, and not below `ring_head`."""
    cdef const CompletionCell *cell = cell_of(rings, entry, index)
    cdef Outcome outcome
    outcome.batch, outcome.range = load_relaxed(&cell.batch), load_relaxed(&cell.range)
    outcome.result, outcome.base_offset = load_relaxed(&cell.result), load_relaxed(&cell.base_offset)
    return outcome


cdef void ring_push(const Rings *rings, uint64_t entry, const Outcome *outcome) noexcept nogil:
    """Push the outcome of a batch, or of a part of it; the store of `ring_tail` publishes it."""
    cdef uint64_t tail = load_relaxed(&reader_of(rings, entry).ring_tail)
    cdef CompletionCell *cell = cell_of(rings, entry, tail)
    store_relaxed(&cell.batch, outcome.batch)
    store_relaxed(&cell.base_offset, outcome.base_offset)
    store_relaxed(&cell.result, outcome.result)
    store_relaxed(&cell.range, outcome.range)
    store_release(&reader_of(rings, entry).ring_tail, tail + 1)


cdef bint ring_has(const Rings *rings, uint64_t entry, const Outcome *outcome) noexcept nogil:
    """Return whether a process has an unread completion for these records of a batch."""
    cdef uint64_t tail = load_relaxed(&reader_of(rings, entry).ring_tail)
    cdef uint64_t index = tail - unread_of(rings, entry)
    while index != tail:
        if load_relaxed(&cell_of(rings, entry, index).batch) == outcome.batch:
            if load_relaxed(&cell_of(rings, entry, index).range) == outcome.range:
                return True
        index += 1
    return False


cdef void rings_push(const Rings *rings, const SlotHeader *header, uint64_t slot, bint again) noexcept nogil:
    """Push a concluded batch's result to all of its contributors; `again`: but to those that have it."""
    cdef Outcome outcome
    cdef uint64_t entry
    outcome.batch = load_relaxed(&header.generation) << BATCH_SLOT_BITS | slot
    outcome.range, outcome.result = range_of(header), load_relaxed(&header.result)
    outcome.base_offset = load_relaxed(&header.base_offset)
    entry = next_contributor(header, 0, rings.count)
    while entry < rings.count:
        if not (again and ring_has(rings, entry, &outcome)):
            ring_push(rings, entry, &outcome)
        entry = next_contributor(header, entry + 1, rings.count)
