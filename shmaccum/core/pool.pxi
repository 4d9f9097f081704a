"""BufferPool: the slab's slots, allocated fairly to the processes of a host (Kafka's ``BufferPool.java``).

A buffer is a *chain* of one or more slots, linked by `SlotHeader.chain`; the first one's header speaks for all. The
pool's lock guards all of this file's words::

                 allocate                               append             sealed, sent, completed
      FREE ─────────────────────▶ ALLOCATED by an owner ───────▶ OPEN ────────────────────────────┐
       ▲ ▲                             │ free, or reclaim: the owner died                          │
       │ └─────────────────────────────┘                                                           │
       └──────────────────────────────────────── free ◀────────────────────────────────────────────┘

Promises:

* A slot has one owner: it is in no second chain, and free in the bitmap only if it is in none.
* Memory is bounded, and no slot leaks. The headers say which slots are taken; the bitmap and its count are rebuilt from
  them after a death.
* Waiting is fair: first come, first served, over all processes. While fewer slots are free than the waiters need, only
  the first of them gets one, or the process whose *turn* it is. A waiter that is dead, overdue or stopped does not hold
  up the others.
* A buffer grows only by a slot that no process waits for, by one that is its process's by turn, or by slots that its
  process has waited for.

Each operation is one section: lock, change, unlock, without a call of the kernel. Its caller learns before, without the
lock, which processes are dead; a death is final. A process that is woken is woken after it.

The stores in order, and what a death after each leaves; then the lock is taken over, and the indexes are rebuilt:

==========  ===============================  =======================================================================
allocate    chain of each slot               links that no buffer counts
            generation += 1, then slots      the same; the next buffer there has another generation
            state = ALLOCATED                the buffer of a dead process, until `pool_reclaim`
            bitmap, count, statistics        the same
free        state = FREE                     free slots, still taken in the bitmap
            bitmap, count                    the same
grow        chain of the new slot = 0        nothing
            chain of the last slot           a link behind the counted slots: no reader follows it
            slots += 1                       the slot belongs to the buffer, but is free in the bitmap
            bitmap, count                    nothing
extend      chain of the last slot           a link behind the counted slots; the others are a dead process's
            state of the others = FREE       free slots, still taken in the bitmap
            slots += their number            nothing
join        cell                             a cell behind the tail, which the next waiter overwrites
            tail += 1                        the ticket of a dead process
leave       cell = 0                         a head that stands before an empty cell
            head                             nothing
turn        the word, behind the others      a dead process's turn, until the next waiter is served
==========  ===============================  =======================================================================

The slots behind a buffer's first stay FREE by their own headers, so one store takes or frees all of them.

The waiter queue is a ring of tickets. Ticket *t* is cell ``t % WAITERS``, 0 once it has left::

      63         48 47          24 23             8 7             2      1            0
     +-------------+--------------+----------------+----------------+-------------+------+
     | incarnation | deadline, s  | process entry  | number of looks | passed over | held |
     +-------------+--------------+----------------+----------------+-------------+------+

A waiter looks at least ten times a second, and counts that in its cell. A waiter without a look for a second is
*passed over*: it keeps its place, and is the head again from its next look on. A wake-up costs more than filling a
slot. So the head is woken for *enough* free slots: a number that grows with each wake-up and shrinks with each vain
wait. It is not woken again before it has looked: a busy machine can let it run late.

Processes that fill the same partitions run out of room at the same time. If each were woken for each batch, most would
fill a few records and wait again. So a waiter that is served has a *turn*: it takes free slots without waiting, up to
`most_at_once`, until the next one is served or it waits itself. The head is then woken for enough slots beyond those.
The turn is one word::

      63         48 47               24 23             8 7             1      0
     +-------------+-------------------+----------------+---------------+------+
     | incarnation | slots left        | process entry  | 0             | held |
     +-------------+-------------------+----------------+---------------+------+

If its process dies, stops, or needs no more, the others wait for those slots longer, at most until the head looks.

All schedules of small scenarios of it are walked in ``tools/explore/memory.pxi``.
"""

cdef extern from * nogil:
    int trailing_zeros "__builtin_ctzll" (uint64_t bits)
    int leading_zeros "__builtin_clzll" (uint64_t bits)
    int bit_count "__builtin_popcountll" (uint64_t bits)


cdef enum:
    STATE_FREE = 0
    STATE_ALLOCATED = 1
    WORD_BITS = 64
    MOST_DEAD = 64  # that one look knows of
    MOST_AT_ONCE = 64  # filling that many slots makes the cost of a wake-up small
    PART_AT_ONCE = 8  # the other slots keep the sender busy meanwhile

    CELL_HELD = 1  # always set: the cell of entry 0, incarnation 0 must not look empty
    CELL_PASSED_OVER = 2
    CELL_LOOK = 4
    CELL_LOOKS = 0xFF & ~(CELL_HELD | CELL_PASSED_OVER)
    DEADLINE_SHIFT = 24
    DEADLINE_MASK = (1 << 24) - 1  # deadlines are compared modulo 2**24 seconds
    FURTHEST_S = DEADLINE_MASK // 4
    LEFT_SHIFT = 24
    LEFT_MASK = (1 << 24) - 1
    GRACE_S = 1

cdef enum:
    # What is damaged, if anything.
    SOUND
    WRONG_BITMAP
    WRONG_QUEUE


cdef uint64_t OWNER_BITS = 0xFFFFULL << INCARNATION_SHIFT | 0xFFFFULL << OWNER_SHIFT
cdef uint64_t LAST_TICKET = 1ULL << 62
cdef uint64_t ALL_BITS = ~0ULL


cdef struct Handle:
    # A buffer, by its first slot.
    uint64_t slot
    uint64_t slots
    uint64_t generation


cdef struct Damage:
    int kind
    uint64_t first
    uint64_t second


cdef Damage UNDAMAGED
UNDAMAGED.kind = SOUND


cdef struct Dead:
    # Owner bits of dead processes. Several can have had the same entry, one after the other.
    uint64_t count
    uint64_t owners[MOST_DEAD]


cdef struct Look:
    # A waiter's look at the queue, and what came of it.
    int64_t number
    uint64_t slots
    double started_s
    double timeout_s
    double now_s
    double absent_s
    int was_woken
    Dead dead
    bint changed
    bint is_head
    bint is_served
    int64_t waiter


cdef struct Slots:
    # Where the headers and the slots are.
    char *headers
    uint64_t header_size
    char *bytes
    uint64_t slot_size
    uint64_t slot_count


cdef struct Pool:
    Superblock *superblock
    LockLine *line
    sem_t *gate
    char *processes
    word *bitmap
    WaiterCell *cells
    Slots slots
    uint64_t max_processes
    uint64_t most_at_once

    # What this process knows of the queue; used under the lock.

    # A ticket, its cell, and since when the cell has that value.
    uint64_t seen_ticket
    uint64_t seen_cell
    double seen_s
    # A ticket and its cell when this process last chose to wake its holder.
    uint64_t woken_ticket
    uint64_t woken_cell


cdef uint64_t _owner_of(uint64_t ticket) noexcept nogil:
    """Return a process's owner bits in a slot's state and in a waiter's cell."""
    return ((ticket & UNFINISHED) - 1) << OWNER_SHIFT | ticket >> TICKET_SHIFT << INCARNATION_SHIFT


cdef uint64_t _entry_of(uint64_t owned) noexcept nogil:
    return owned >> OWNER_SHIFT & 0xFFFF


cdef bint _is_dead(const Dead *dead, uint64_t owned) noexcept nogil:
    """Return whether the owner of a state or cell is among the dead."""
    cdef uint64_t number
    for number in range(dead.count):
        if dead.owners[number] == owned & OWNER_BITS:
            return True
    return False


cdef Slots slots_of(Segment segment) noexcept:
    """Return where a slab's headers and slots are."""
    cdef Slots slots
    slots.headers = segment.memory + segment.geometry.regions.headers
    slots.header_size = segment.geometry.regions.header_size
    slots.bytes = segment.memory + segment.geometry.regions.slots
    slots.slot_size = segment.geometry.sizes.slot_size
    slots.slot_count = segment.geometry.sizes.slot_count
    return slots


cdef SlotHeader *header_of(const Slots *slots, uint64_t slot) noexcept nogil:
    return <SlotHeader *>(slots.headers + slot * slots.header_size)


cdef SlotHeader *_header(const Pool *pool, uint64_t slot) noexcept nogil:
    return header_of(&pool.slots, slot)


# --- the bitmap -----------------------------------------------------------------------------------


cdef bint _is_free(const Pool *pool, uint64_t slot) noexcept nogil:
    return load_relaxed(&pool.bitmap[slot // WORD_BITS]) >> slot % WORD_BITS & 1


cdef void _mark(Pool *pool, uint64_t slot, bint free) noexcept nogil:
    """Mark a slot as free or taken; it was the other."""
    cdef word *at = &pool.bitmap[slot // WORD_BITS]
    cdef uint64_t count = load_relaxed(&pool.superblock.free_slots)
    store_relaxed(at, load_relaxed(at) ^ 1ULL << slot % WORD_BITS)
    store_relaxed(&pool.superblock.free_slots, count + 1 if free else count - 1)


cdef int64_t _lowest(const Pool *pool, uint64_t begin) noexcept nogil:
    """Return the lowest free slot from `begin` on, -1 if there is none."""
    cdef uint64_t bits, slot = begin
    while slot < pool.slots.slot_count:
        bits = load_relaxed(&pool.bitmap[slot // WORD_BITS]) >> slot % WORD_BITS
        if bits:
            slot += trailing_zeros(bits)
            return <int64_t>slot if slot < pool.slots.slot_count else -1
        slot = (slot // WORD_BITS + 1) * WORD_BITS
    return -1


cdef int64_t _lowest_adjacent(const Pool *pool, uint64_t count) noexcept nogil:
    """Return the first of the lowest `count` adjacent free slots; the lowest free one if no `count` are adjacent.

    -1 if fewer are free.
    """
    cdef uint64_t slot = 0, adjacent = 0, found = 0
    cdef int64_t lowest = -1
    while slot < pool.slots.slot_count:
        if slot % WORD_BITS == 0 and not load_relaxed(&pool.bitmap[slot // WORD_BITS]):
            adjacent = 0
            slot += WORD_BITS
            continue
        if _is_free(pool, slot):
            adjacent += 1
            found += 1
            if adjacent == count:
                return <int64_t>(slot - count + 1)
            if lowest < 0:
                lowest = <int64_t>slot
        else:
            adjacent = 0
        slot += 1
    return lowest if found >= count else -1


# --- slots ----------------------------------------------------------------------------------------


cdef int64_t following(const Slots *slots, uint64_t slot) noexcept nogil:
    """Return the slot that a chain continues with, -1 if its link is damaged. All but the first are FREE."""
    cdef uint64_t link = load_relaxed(&header_of(slots, slot).chain)
    if not 0 < link <= slots.slot_count or load_relaxed(&header_of(slots, link - 1).state) & STATE_MASK:
        return -1
    return <int64_t>link - 1


cdef uint64_t _count_of(const Pool *pool, uint64_t slot) noexcept nogil:
    """Return the number of slots of a buffer; 1 if it is damaged."""
    cdef uint64_t count = load_relaxed(&_header(pool, slot).slots)
    return count if 0 < count <= pool.slots.slot_count else 1


cdef void _note_touch(Pool *pool, uint64_t end) noexcept nogil:
    """Note that slots below `end` are taken now; before they are, so that it stays true after a death."""
    if end > load_relaxed(&pool.superblock.touched_slots):
        store_relaxed(&pool.superblock.touched_slots, end)


cdef void _note_peak(Pool *pool) noexcept nogil:
    cdef uint64_t free = load_relaxed(&pool.superblock.free_slots)
    cdef uint64_t used = pool.slots.slot_count - free if free < pool.slots.slot_count else 0
    if used > load_relaxed(&pool.superblock.peak_slots):
        store_relaxed(&pool.superblock.peak_slots, used)


cdef bint slots_take(Pool *pool, uint64_t owner, uint64_t count, Handle *taken, Damage *damage) noexcept nogil:
    """Take `count` slots as one chain; return whether that many were free.

    They are the lowest adjacent ones, or the lowest of all.
    """
    cdef int64_t first = _lowest_adjacent(pool, count) if count > 1 else _lowest(pool, 0)
    cdef SlotHeader *header
    if first < 0:
        return False
    header = _header(pool, first)
    taken.slot = <uint64_t>first
    taken.slots = count
    taken.generation = load_relaxed(&header.generation) + 1
    if not slots_chain(pool, first, count, damage):
        return False
    store_relaxed(&header.generation, taken.generation)
    store_relaxed(&header.slots, count)
    store_release(&header.state, owner | STATE_ALLOCATED)
    _mark_chain(pool, first, count)
    return True


cdef bint slots_chain(Pool *pool, uint64_t first, uint64_t count, Damage *damage) noexcept nogil:
    """Link the lowest free slots from `first` on; return whether all are free by their headers, too."""
    cdef int64_t following, slot = <int64_t>first
    while True:
        if load_relaxed(&_header(pool, slot).state) & STATE_MASK:
            damage.kind, damage.first = WRONG_BITMAP, <uint64_t>slot
            return False
        count -= 1
        following = _lowest(pool, slot + 1) if count else -1
        store_relaxed(&_header(pool, slot).chain, <uint64_t>(following + 1))
        if not count:
            _note_touch(pool, slot + 1)
            return True
        if following < 0:  # `_lowest_adjacent` has counted them
            damage.kind, damage.first = WRONG_BITMAP, <uint64_t>slot
            return False
        slot = following


cdef void _mark_chain(Pool *pool, uint64_t first, uint64_t count) noexcept nogil:
    """Mark the slots of a new chain as taken."""
    cdef int64_t slot = <int64_t>first
    while True:
        _mark(pool, slot, False)
        count -= 1
        if not count:
            _note_peak(pool)
            return
        slot = <int64_t>load_relaxed(&_header(pool, slot).chain) - 1  # as linked just now, under this lock


cdef bint _is_taken(const Pool *pool, const Handle *handle) noexcept nogil:
    """Return whether the allocation of a handle still exists."""
    cdef SlotHeader *header
    if handle.slot >= pool.slots.slot_count:
        return False
    header = _header(pool, handle.slot)
    return load_acquire(&header.state) & STATE_MASK and load_relaxed(&header.generation) == handle.generation


cdef bint slots_give(Pool *pool, const Handle *handle) noexcept nogil:
    """Free a buffer; return whether it was taken."""
    cdef int64_t slot = <int64_t>handle.slot
    cdef uint64_t count
    if not _is_taken(pool, handle):
        return False
    count = _count_of(pool, slot)
    store_release(&_header(pool, slot).state, STATE_FREE)
    while slot >= 0 and not _is_free(pool, slot):
        _mark(pool, slot, True)
        count -= 1
        if not count:
            return True
        slot = following(&pool.slots, slot)
    slots_rebuild(pool)  # the chain is damaged: only all headers show which slots are free
    return True


cdef void slots_rebuild(Pool *pool) noexcept nogil:
    """Rebuild bitmap and count from the headers."""
    cdef uint64_t slot, count, bits, free = 0, words = (pool.slots.slot_count + WORD_BITS - 1) // WORD_BITS
    cdef int64_t link
    for slot in range(words):
        store_relaxed(&pool.bitmap[slot], ALL_BITS)
    if pool.slots.slot_count % WORD_BITS:
        store_relaxed(&pool.bitmap[words - 1], (1ULL << pool.slots.slot_count % WORD_BITS) - 1)
    for slot in range(pool.slots.slot_count):
        if not load_acquire(&_header(pool, slot).state) & STATE_MASK:
            continue
        count, link = _count_of(pool, slot), <int64_t>slot
        while count and link >= 0:
            bits = load_relaxed(&pool.bitmap[link // WORD_BITS])
            store_relaxed(&pool.bitmap[link // WORD_BITS], bits & ~(1ULL << link % WORD_BITS))
            count -= 1
            link = following(&pool.slots, link) if count else -1
    for slot in range(words):
        free += bit_count(load_relaxed(&pool.bitmap[slot]))
    store_relaxed(&pool.superblock.free_slots, free)


cdef uint64_t _free_dead(Pool *pool, const Dead *dead) noexcept nogil:
    """Free what dead processes allocated and never used; return how many slots.

    A slot that its owner has put into a deque is not ALLOCATED any longer. No process changes a dead one's slot.
    """
    cdef uint64_t slot, state, taken = 0, reclaimed = 0
    cdef Handle handle
    for slot in range(pool.slots.slot_count):
        state = load_acquire(&_header(pool, slot).state)
        if not state & STATE_MASK:
            continue
        if state & STATE_MASK == STATE_ALLOCATED and _is_dead(dead, state):
            handle.slot, handle.generation = slot, load_relaxed(&_header(pool, slot).generation)
            reclaimed += _count_of(pool, slot)
            slots_give(pool, &handle)
        else:
            taken += _count_of(pool, slot)
    if reclaimed:
        store_relaxed(
            &pool.superblock.reclaimed_slots, load_relaxed(&pool.superblock.reclaimed_slots) + reclaimed
        )
    if load_relaxed(&pool.superblock.free_slots) != pool.slots.slot_count - taken:
        slots_rebuild(pool)  # nothing else would notice a wrong count
    return reclaimed


# --- the waiter queue -----------------------------------------------------------------------------


cdef word *_cell(const Pool *pool, uint64_t ticket) noexcept nogil:
    return &pool.cells[ticket % WAITERS].holder


cdef uint64_t _wanted(const Pool *pool, uint64_t ticket) noexcept nogil:
    return load_relaxed(&pool.cells[ticket % WAITERS].slots)


cdef bint _are_ends(uint64_t head, uint64_t tail) noexcept nogil:
    """Return whether a queue can begin and end there: then no loop over it is longer than the ring."""
    return head <= tail <= LAST_TICKET and tail - head <= WAITERS


cdef bint queue_ends(const Pool *pool, uint64_t *head, uint64_t *tail, Damage *damage) noexcept nogil:
    """Load the first ticket and the next one to draw; return whether they are sound. Under the lock."""
    head[0], tail[0] = load_relaxed(&pool.superblock.waiter_head), load_relaxed(&pool.superblock.waiter_tail)
    if _are_ends(head[0], tail[0]):
        return True
    damage.kind, damage.first, damage.second = WRONG_QUEUE, head[0], tail[0]
    return False


cdef bint queue_ends_now(const Pool *pool, uint64_t *head, uint64_t *tail) noexcept nogil:
    """Load them without the lock: when the tail was read, the head was between the two reads of it."""
    cdef uint64_t before = load_acquire(&pool.superblock.waiter_head)
    tail[0] = load_acquire(&pool.superblock.waiter_tail)
    head[0] = load_acquire(&pool.superblock.waiter_head)
    if head[0] > tail[0]:
        head[0] = tail[0]
    if before > tail[0] or not _are_ends(head[0], tail[0]):
        head[0] = before  # for the error
        return False
    return True


cdef uint64_t _spare(const Pool *pool, uint64_t head, uint64_t tail, uint64_t free) noexcept nogil:
    """Return how many slots would be free after all waiters are served, except those passed over."""
    cdef uint64_t ticket, wanted
    for ticket in range(head, tail):
        if load_relaxed(_cell(pool, ticket)) & (CELL_HELD | CELL_PASSED_OVER) == CELL_HELD:
            wanted = _wanted(pool, ticket)
            if wanted >= free:
                return 0
            free -= wanted
    return free


cdef void _move_head(Pool *pool, uint64_t head, uint64_t tail) noexcept nogil:
    """Move the head to the first ticket still held: all there is to rebuild of the queue after a death."""
    while head < tail and not load_relaxed(_cell(pool, head)):
        head += 1
    store_relaxed(&pool.superblock.waiter_head, head)


cdef int64_t _head(const Pool *pool, uint64_t head, uint64_t tail) noexcept nogil:
    """Return the ticket to serve next, -1 if there is none that is not passed over."""
    cdef uint64_t ticket
    for ticket in range(head, tail):
        if load_relaxed(_cell(pool, ticket)) & (CELL_HELD | CELL_PASSED_OVER) == CELL_HELD:
            return <int64_t>ticket
    return -1


cdef int64_t queue_join(
    Pool *pool, uint64_t owner, uint64_t slots, double now_s, double timeout_s, Damage *damage
) noexcept nogil:
    """Draw a ticket; return -1 while the ring is full."""
    cdef uint64_t head = 0, ticket = 0
    cdef uint64_t deadline = <uint64_t>(now_s + (timeout_s if timeout_s < FURTHEST_S else FURTHEST_S)) + GRACE_S
    if not queue_ends(pool, &head, &ticket, damage) or ticket - head >= WAITERS:
        return -1
    if head == ticket:
        store_relaxed(&pool.superblock.waiting_since_ms, <uint64_t>(now_s * 1000))
    store_relaxed(&pool.cells[ticket % WAITERS].slots, slots)
    store_relaxed(_cell(pool, ticket), owner | (deadline & DEADLINE_MASK) << DEADLINE_SHIFT | CELL_HELD)
    store_release(&pool.superblock.waiter_tail, ticket + 1)
    return <int64_t>ticket


cdef void _note_look(Pool *pool, uint64_t ticket, uint64_t head) noexcept nogil:
    """Count a look of a ticket's holder, which is no longer passed over."""
    cdef uint64_t cell = load_relaxed(_cell(pool, ticket))
    if ticket >= head and cell & CELL_HELD:
        store_relaxed(
            _cell(pool, ticket), cell & ~<uint64_t>0xFF | (cell & CELL_LOOKS) + CELL_LOOK & CELL_LOOKS | CELL_HELD
        )


cdef bint _is_overdue(uint64_t cell, double now_s) noexcept nogil:
    """Return whether a holder should have left: it is stopped, or was interrupted in leaving."""
    cdef uint64_t late = <uint64_t>now_s - (cell >> DEADLINE_SHIFT) & DEADLINE_MASK
    return 0 < late < DEADLINE_MASK // 2


cdef bint _is_absent(Pool *pool, uint64_t ticket, uint64_t cell, double now_s, double absent_s) noexcept nogil:
    """Return whether this process has seen no look of a ticket's holder for `absent_s`."""
    if pool.seen_ticket != ticket or pool.seen_cell != cell:
        pool.seen_ticket, pool.seen_cell, pool.seen_s = ticket, cell, now_s
        return False
    return now_s - pool.seen_s > absent_s  # below 0 if the time was read before a wait for the lock


cdef bint queue_pass_over(
    Pool *pool, int64_t me, const Dead *dead, double now_s, double absent_s, Damage *damage
) noexcept nogil:
    """Make a running waiter the head: remove dead and overdue ones, pass over those that do not look.

    Returns:
        Whether that changed the queue. The check ends at the ticket `me`.
    """
    cdef uint64_t head = 0, tail = 0, ticket, cell
    cdef bint changed = False
    if not queue_ends(pool, &head, &tail, damage):
        return False
    for ticket in range(head, tail):
        cell = load_relaxed(_cell(pool, ticket))
        if not cell:
            continue
        if <int64_t>ticket == me:
            break
        if _is_dead(dead, cell) or _is_overdue(cell, now_s):
            store_relaxed(_cell(pool, ticket), 0)
        elif cell & CELL_PASSED_OVER:
            continue
        elif _is_absent(pool, ticket, cell, now_s, absent_s):
            store_relaxed(_cell(pool, ticket), cell | CELL_PASSED_OVER)
        else:
            break
        changed = True
    if changed:
        _move_head(pool, head, tail)
    return changed


cdef int64_t _next_waiter(const Pool *pool, uint64_t head, uint64_t tail) noexcept nogil:
    """Return the process entry of the waiter to serve next, -1 if there is none."""
    cdef int64_t ticket = _head(pool, head, tail)
    return _holder(pool, load_relaxed(_cell(pool, ticket))) if ticket >= 0 else -1


cdef int64_t _holder(const Pool *pool, uint64_t cell) noexcept nogil:
    """Return the process entry of a cell's holder, -1 if there is no such entry."""
    cdef uint64_t entry = _entry_of(cell)
    return <int64_t>entry if entry < pool.max_processes else -1


cdef int64_t _to_wake(Pool *pool, uint64_t head, uint64_t tail) noexcept nogil:
    """Return the process entry to wake now that slots became free, -1 for none.

    It is the head's, if enough slots are free beyond the turn, and as many as it waits for, and it has looked since
    this process last chose it. If that wake-up is lost, the head wakes when its slice runs out.
    """
    cdef uint64_t cell, free = load_relaxed(&pool.superblock.free_slots)
    cdef int64_t ticket = -1
    if head != tail and free >= load_relaxed(&pool.superblock.enough_slots) + _left_of_turn(pool):
        ticket = _head(pool, head, tail)
    if ticket < 0 or _wanted(pool, ticket) > free:
        return -1
    cell = load_relaxed(_cell(pool, ticket))
    if pool.woken_ticket == <uint64_t>ticket and pool.woken_cell == cell:
        return -1
    pool.woken_ticket, pool.woken_cell = <uint64_t>ticket, cell
    return _holder(pool, cell)


cdef uint64_t _left_of_turn(const Pool *pool) noexcept nogil:
    """Return how many slots the turn has left; 0 if the word is damaged."""
    cdef uint64_t left = load_relaxed(&pool.superblock.turn) >> LEFT_SHIFT & LEFT_MASK
    return left if left <= pool.most_at_once else 0


cdef uint64_t _by_turn(const Pool *pool, uint64_t owner) noexcept nogil:
    """Return how many slots a process may take before the waiters."""
    cdef uint64_t turn = load_relaxed(&pool.superblock.turn)
    return _left_of_turn(pool) if turn & (OWNER_BITS | CELL_HELD) == owner | CELL_HELD else 0


cdef void _set_turn(Pool *pool, uint64_t owner, uint64_t left) noexcept nogil:
    store_relaxed(&pool.superblock.turn, owner | left << LEFT_SHIFT | CELL_HELD if left else 0)


cdef void _learn(Pool *pool, bint was_woken) noexcept nogil:
    """Adapt the number of slots to wake at: raise it after a wake-up, lower it after a vain wait."""
    cdef uint64_t enough = load_relaxed(&pool.superblock.enough_slots)
    if not was_woken:
        enough = enough // 2
    elif enough == 0:
        enough = 1
    elif enough < pool.most_at_once:
        enough = 2 * enough
    store_relaxed(&pool.superblock.enough_slots, _within(enough, pool.most_at_once) if enough else 0)


# --- sections -------------------------------------------------------------------------------------


cdef int pool_enter(Pool *pool, uint64_t ticket) noexcept nogil:
    """Take the pool's lock, and rebuild what it guards if its last holder did not finish."""
    cdef int status
    if ticket == 0:
        return LOCK_REJOIN
    status = lock_spin(pool.line, pool.gate, ticket, load_relaxed(&pool.superblock.sender_entry))
    if status == LOCK_UNFINISHED:
        pool_rebuild(pool)
        store_relaxed(&pool.superblock.rebuilds, load_relaxed(&pool.superblock.rebuilds) + 1)
        status = LOCK_TAKEN
    return status


cdef void pool_exit(Pool *pool, const Damage *damage) noexcept nogil:
    """Release the pool's lock. A wrong bitmap is left to the next holder, which rebuilds it.

    The fence makes the changes visible before the caller looks whether others sleep.
    """
    lock_release(pool.line, pool.gate, damage.kind == WRONG_BITMAP)
    fence()


cdef void pool_rebuild(Pool *pool) noexcept nogil:
    """Rebuild the indexes; under the lock. Damaged ends of the queue are left: each waiter gets the error."""
    cdef uint64_t head = 0, tail = 0
    cdef Damage damage
    slots_rebuild(pool)
    if queue_ends(pool, &head, &tail, &damage):
        _move_head(pool, head, tail)


cdef int pool_repair(Pool *pool, uint64_t ticket) noexcept nogil:
    """Rebuild the indexes, whether they need it or not."""
    cdef Damage damage = UNDAMAGED
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    pool_rebuild(pool)
    pool_exit(pool, &damage)
    return status


cdef int pool_allocate(
    Pool *pool, uint64_t ticket, uint64_t count, Handle *taken, bint *is_taken, Damage *damage
) noexcept nogil:
    """Allocate if more is free than all waiters need, or in turn.

    If there is enough for all, a queue would only make each wait for a wake-up by the one before.
    """
    cdef uint64_t head = 0, tail = 0, owner = _owner_of(ticket), left
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    if queue_ends(pool, &head, &tail, damage):
        if _spare(pool, head, tail, load_relaxed(&pool.superblock.free_slots)) >= count:
            is_taken[0] = slots_take(pool, owner, count, taken, damage)
        else:
            left = _by_turn(pool, owner)
            if left >= count:
                is_taken[0] = slots_take(pool, owner, count, taken, damage)
                if is_taken[0]:
                    _set_turn(pool, owner, left - count)
    pool_exit(pool, damage)
    return status


cdef int pool_free(
    Pool *pool, uint64_t ticket, const Handle *handles, uint64_t count, uint64_t *freed, int64_t *waiter, Damage *damage
) noexcept nogil:
    """Free buffers, and choose whom to wake."""
    cdef uint64_t index, head = 0, tail = 0
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    for index in range(count):
        freed[0] += slots_give(pool, &handles[index])
    if queue_ends(pool, &head, &tail, damage):
        waiter[0] = _to_wake(pool, head, tail)
    pool_exit(pool, damage)
    return status


cdef int pool_look(Pool *pool, uint64_t ticket, Look *look, Handle *taken, Damage *damage) noexcept nogil:
    """Allocate if a waiter is the head; else draw its ticket, or keep it."""
    cdef uint64_t head = 0, tail = 0, owner = _owner_of(ticket)
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    if look.number < 0:
        look.number = queue_join(pool, owner, look.slots, look.started_s, look.timeout_s, damage)
        if _by_turn(pool, owner):
            _set_turn(pool, owner, 0)
    else:
        _note_look(pool, look.number, load_relaxed(&pool.superblock.waiter_head))
    if queue_pass_over(pool, look.number, &look.dead, look.now_s, look.absent_s, damage):
        look.changed = True
    if queue_ends(pool, &head, &tail, damage):
        if look.changed:
            look.waiter = _next_waiter(pool, head, tail)
        look.is_head = look.number >= 0 and _head(pool, head, tail) == look.number
        if look.is_head:
            if look.was_woken >= 0:
                _learn(pool, look.was_woken)
            look.is_served = slots_take(pool, owner, look.slots, taken, damage)
            if look.is_served:
                _set_turn(pool, owner, pool.most_at_once - min(look.slots, pool.most_at_once))
    pool_exit(pool, damage)
    return status


cdef int pool_leave(
    Pool *pool, uint64_t ticket, int64_t number, uint64_t waited_ns, bint needs_none, int64_t *waiter, Damage *damage
) noexcept nogil:
    """End a wait: return its ticket, unless that was removed, and choose whom to wake. Counts the wait.

    A head that `needs_none` any longer has its turn, too: it goes on, and will need some soon.
    """
    cdef uint64_t head = 0, tail = 0, owner = _owner_of(ticket)
    cdef ProcessEntry *process
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    if queue_ends(pool, &head, &tail, damage):
        if number >= 0 and <uint64_t>number >= head:
            if needs_none and _head(pool, head, tail) == number:
                _set_turn(pool, owner, pool.most_at_once)
            store_relaxed(_cell(pool, number), 0)
            _move_head(pool, head, tail)
            head = load_relaxed(&pool.superblock.waiter_head)
        if load_relaxed(&pool.superblock.free_slots):
            waiter[0] = _to_wake(pool, head, tail) if _by_turn(pool, owner) else _next_waiter(pool, head, tail)
    process = <ProcessEntry *>pool.processes + ((ticket & UNFINISHED) - 1)
    store_relaxed(&process.waits, load_relaxed(&process.waits) + 1)
    store_relaxed(&process.wait_ns, load_relaxed(&process.wait_ns) + waited_ns)
    pool_exit(pool, damage)
    return status


cdef int pool_reclaim(
    Pool *pool, uint64_t ticket, Look *look, uint64_t *reclaimed, Damage *damage
) noexcept nogil:
    """Free the slots that dead processes took and never used, and remove the dead from the queue."""
    cdef uint64_t head = 0, tail = 0
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    reclaimed[0] = _free_dead(pool, &look.dead)
    look.changed = queue_pass_over(pool, -1, &look.dead, look.now_s, look.absent_s, damage)
    if (reclaimed[0] or look.changed) and queue_ends(pool, &head, &tail, damage):
        look.waiter = _next_waiter(pool, head, tail)
    pool_exit(pool, damage)
    return status


cdef int pool_grow(Pool *pool, uint64_t ticket, Handle *handle, bint *grew, Damage *damage) noexcept nogil:
    """Add a slot to a buffer that is as its handle says, if one is free, and no process waits or it is our turn."""
    cdef uint64_t head = 0, tail = 0, owner = _owner_of(ticket), left
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    if queue_ends(pool, &head, &tail, damage):
        left = _by_turn(pool, owner)
        if head == tail or left:
            grew[0] = slots_grow(pool, handle, damage)
            if grew[0] and head != tail:
                _set_turn(pool, owner, left - 1)
    pool_exit(pool, damage)
    return status


cdef bint slots_grow(Pool *pool, Handle *handle, Damage *damage) noexcept nogil:
    """Link a free slot behind a buffer's last one, then count it; return whether it did."""
    cdef int64_t added = _lowest(pool, 0), last
    if added < 0:
        return False
    if load_relaxed(&_header(pool, added).state) & STATE_MASK:
        damage.kind, damage.first = WRONG_BITMAP, <uint64_t>added
        return False
    last = _last_of(pool, handle)
    if last < 0:
        return False
    _note_touch(pool, added + 1)
    # It does not count before `SlotHeader.slots` does.
    store_relaxed(&_header(pool, added).chain, 0)
    store_relaxed(&_header(pool, last).chain, <uint64_t>added + 1)
    handle.slots += 1
    store_release(&_header(pool, handle.slot).slots, handle.slots)
    _mark(pool, added, False)
    _note_peak(pool)
    return True


cdef int pool_extend(
    Pool *pool, uint64_t ticket, Handle *handle, const Handle *own, bint *extended, Damage *damage
) noexcept nogil:
    """Add a chain of slots that this process has allocated to a buffer that is as its handle says."""
    cdef int64_t last
    cdef int status = pool_enter(pool, ticket)
    if status != LOCK_TAKEN:
        return status
    last = _last_of(pool, handle)
    if last >= 0 and _last_of(pool, own) >= 0:
        # A death between these stores leaves free slots, which the rebuild finds.
        store_relaxed(&_header(pool, last).chain, own.slot + 1)
        store_release(&_header(pool, own.slot).state, STATE_FREE)
        handle.slots += own.slots
        store_release(&_header(pool, handle.slot).slots, handle.slots)
        extended[0] = True
    pool_exit(pool, damage)
    return status


cdef int64_t _last_of(const Pool *pool, const Handle *handle) noexcept nogil:
    """Return the last slot of a buffer; -1 if it is not as its handle says."""
    cdef int64_t last = <int64_t>handle.slot
    cdef uint64_t left = handle.slots
    if not _is_taken(pool, handle) or _count_of(pool, last) != left:
        return -1
    while left > 1 and last >= 0:
        last = following(&pool.slots, last)
        left -= 1
    return last


# --- for Python code ------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class Buffer:
    """Memory from the pool: a chain of one or more slots.

    Args:
        slot: the first one.
        slots: how many there were when this handle was made; a batch can have grown since.
        generation: the slot's at this allocation; it differs in handles of earlier ones.
    """

    cdef readonly uint64_t slot
    cdef readonly uint64_t slots
    cdef readonly uint64_t generation

    def __init__(self, uint64_t slot=0, uint64_t slots=0, uint64_t generation=0):
        self.slot = slot
        self.slots = slots
        self.generation = generation

    @property
    def batch(self):
        """The id of the batch in it: generation and slot in one word, as completions have it."""
        return self.generation << BATCH_SLOT_BITS | self.slot

    def __eq__(self, other):
        if not isinstance(other, Buffer):
            return NotImplemented
        return (self.slot, self.slots, self.generation) == (other.slot, other.slots, other.generation)

    def __hash__(self):
        return hash((self.slot, self.generation))

    def __reduce__(self):
        return Buffer, (self.slot, self.slots, self.generation)  # another process can free it

    def __repr__(self):
        return f"Buffer(slot={self.slot}, slots={self.slots}, generation={self.generation})"


cdef Handle _handle_of(Buffer buffer) noexcept:
    cdef Handle handle
    handle.slot, handle.slots, handle.generation = buffer.slot, buffer.slots, buffer.generation
    return handle


@cython.final
@cython.no_gc
cdef class MemoryTicket:
    """A place in the waiter queue.

    Args:
        slots: the number of slots that it is for.
        started_s: when the wait began, in monotonic seconds.
        timeout_s: after that time, other processes remove the ticket.

    Attributes:
        number: of the ticket; -1 before it is drawn, while the ring is full, and once it has been returned.
        is_head: whether it was its turn at the last look.
    """

    cdef readonly uint64_t slots
    cdef readonly double started_s
    cdef readonly double timeout_s
    cdef readonly int64_t number
    cdef readonly bint is_head

    def __init__(self, uint64_t slots, double started_s, double timeout_s):
        self.slots = slots
        self.started_s = started_s
        self.timeout_s = timeout_s
        self.number = -1


@cython.final
cdef class BufferPool:
    """The sections of a slab's pool. Each method is one section, and returns at once.

    The first item of what a section returns is a status: `LOCK_TAKEN` if it was done; `LOCK_BUSY` or `LOCK_REJOIN` if
    not, and nothing has changed then. A ``waiter`` is the process entry to wake, -1 for none.

    Args:
        segment: the slab.
        lock: the pool's.
        damaged: makes the error for a damage from its description.
    """

    cdef Segment segment
    cdef SlabLock lock
    cdef object damaged
    cdef Pool pool

    def __cinit__(self, Segment segment not None, SlabLock lock not None, damaged):
        cdef char *memory = segment.memory
        cdef const Regions *regions = &segment.geometry.regions
        self.segment, self.lock, self.damaged = segment, lock, damaged
        self.pool.superblock = <Superblock *>memory
        self.pool.line = lock.line
        self.pool.gate = lock.gate
        self.pool.processes = memory + regions.processes
        self.pool.bitmap = <word *>(memory + regions.bitmap)
        self.pool.cells = <WaiterCell *>(memory + regions.waiters)
        self.pool.slots = slots_of(segment)
        self.pool.max_processes = segment.geometry.sizes.max_processes
        self.pool.most_at_once = _within(self.pool.slots.slot_count // PART_AT_ONCE, MOST_AT_ONCE)
        self.pool.seen_ticket = self.pool.woken_ticket = ALL_BITS

    def allocate(self, list taken not None, uint64_t count):
        """Allocate a buffer of `count` slots, if that needs no wait.

        Args:
            taken: gets the buffer.
            count: at least 1.

        Returns:
            (status, whether there is a buffer).

        Raises:
            SlabDamagedError: the bitmap contradicts the headers, or the queue's ends are damaged. What is in `taken`
                is allocated.
        """
        cdef Handle handle
        cdef Damage damage = UNDAMAGED
        cdef bint is_taken = False
        cdef Buffer buffer = _append_buffer(taken)
        count = _within(count, ALL_BITS)
        status = pool_allocate(&self.pool, ticket_of(self.segment), count, &handle, &is_taken, &damage)
        _fill(taken, buffer, &handle, is_taken)
        self._check(&damage)
        return status, is_taken

    def free(self, *buffers):
        """Free buffers.

        Returns:
            (status, waiter, number of buffers that were allocated).

        Raises:
            SlabDamagedError: the queue's ends are damaged; the buffers are free.
        """
        cdef Py_ssize_t index, count = len(buffers)
        cdef uint64_t freed = 0
        cdef int64_t waiter = -1
        cdef Damage damage = UNDAMAGED
        cdef Handle *handles = <Handle *>PyMem_Malloc(max(1, count) * sizeof(Handle))
        if handles == NULL:
            raise MemoryError
        try:
            for index in range(count):
                handles[index] = _handle_of(buffers[index])
            status = pool_free(&self.pool, ticket_of(self.segment), handles, count, &freed, &waiter, &damage)
        finally:
            PyMem_Free(handles)
        self._check(&damage)
        return status, waiter, freed

    def look(
        self, MemoryTicket ticket not None, list taken not None, was_woken, dead, double now_s, double absent_s
    ):
        """Allocate if it is a ticket's turn; draw it before if need be.

        Args:
            ticket: of a wait of this process.
            taken: gets the buffer.
            was_woken: whether a wake-up ended the last wait of the head; None if it did not wait as the head.
            dead: owners that are proved dead, of `waiters`.
            now_s: monotonic seconds.
            absent_s: waiters without a look for that long are passed over.

        Returns:
            (status, waiter).

        Raises:
            SlabDamagedError: as of `allocate`.
        """
        cdef Handle handle
        cdef Damage damage = UNDAMAGED
        cdef Look look
        cdef Buffer buffer = _append_buffer(taken)
        _begin(&look, dead, now_s, absent_s)
        look.number, look.slots = ticket.number, _within(ticket.slots, ALL_BITS)
        look.started_s, look.timeout_s = ticket.started_s, ticket.timeout_s
        look.was_woken = -1 if was_woken is None else bool(was_woken)
        status = pool_look(&self.pool, ticket_of(self.segment), &look, &handle, &damage)
        ticket.number, ticket.is_head = look.number, look.is_head
        _fill(taken, buffer, &handle, look.is_served)
        self._check(&damage)
        return status, look.waiter

    def leave(self, MemoryTicket ticket not None, uint64_t waited_ns, bint needs_none=False):
        """Return a ticket, if it was drawn, and count the wait.

        Args:
            ticket: the ticket.
            waited_ns: how long the wait was.
            needs_none: whether its process can go on without memory.

        Returns:
            (status, waiter).
        """
        cdef int64_t waiter = -1
        cdef Damage damage = UNDAMAGED
        status = pool_leave(
            &self.pool, ticket_of(self.segment), ticket.number, waited_ns, needs_none, &waiter, &damage
        )
        if status == LOCK_TAKEN:
            ticket.number = -1
        self._check(&damage)
        return status, waiter

    def reclaim(self, dead, double now_s, double absent_s):
        """Free the slots that dead processes allocated and never used, and remove these from the queue.

        It also rebuilds a wrong bitmap count, which no other code would notice.

        Args:
            dead: owners that are proved dead, of `owners` and `waiters`.
            now_s, absent_s: as of `look`.

        Returns:
            (status, waiter, number of slots).
        """
        cdef uint64_t reclaimed = 0
        cdef Damage damage = UNDAMAGED
        cdef Look look
        _begin(&look, dead, now_s, absent_s)
        status = pool_reclaim(&self.pool, ticket_of(self.segment), &look, &reclaimed, &damage)
        self._check(&damage)
        return status, look.waiter, reclaimed

    def grow(self, Buffer buffer not None):
        """Add a slot to a buffer, if one is free, no process waits, and the buffer is as its handle says.

        Returns:
            (status, whether it has one slot more; then its handle has, too).
        """
        cdef Handle handle = _handle_of(buffer)
        cdef bint grew = False
        cdef Damage damage = UNDAMAGED
        status = pool_grow(&self.pool, ticket_of(self.segment), &handle, &grew, &damage)
        buffer.slots = handle.slots
        self._check(&damage)
        return status, bool(grew)

    def extend(self, Buffer buffer not None, Buffer own not None):
        """Add slots of this process to a buffer, if that is as its handle says.

        Args:
            buffer: the buffer.
            own: a buffer of the slots, allocated and not in use.

        Returns:
            (status, whether the buffer has it now; then the buffer's handle says so, too).
        """
        cdef Handle handle = _handle_of(buffer), added = _handle_of(own)
        cdef bint extended = False
        cdef Damage damage = UNDAMAGED
        status = pool_extend(&self.pool, ticket_of(self.segment), &handle, &added, &extended, &damage)
        buffer.slots = handle.slots
        self._check(&damage)
        return status, bool(extended)

    def rebuild(self):
        """Rebuild the bitmap and the queue's head from the headers and cells.

        Returns:
            (status,).
        """
        return (pool_repair(&self.pool, ticket_of(self.segment)),)

    # --- without the lock: what is true at some moment during the call ----------------------------

    def is_taken(self, Buffer buffer not None):
        """Return whether an allocation still exists."""
        cdef Handle handle = _handle_of(buffer)
        return bool(_is_taken(&self.pool, &handle))

    @property
    def free_slots(self):
        return load_relaxed(&self.pool.superblock.free_slots)

    def is_exhausted(self):
        """Return whether a process waits for memory that is not free.

        Raises:
            SlabDamagedError: the queue's ends are damaged.
        """
        cdef uint64_t head = 0, tail = 0
        self._ends(&head, &tail)
        return head != tail and not _spare(&self.pool, head, tail, load_relaxed(&self.pool.superblock.free_slots))

    def waiters(self):
        """Return the held tickets in order: (number, owner, whether it is passed over).

        Raises:
            SlabDamagedError: the queue's ends are damaged.
        """
        cdef uint64_t ticket, cell, head = 0, tail = 0
        self._ends(&head, &tail)
        held = []
        for ticket in range(head, tail):
            cell = load_relaxed(_cell(&self.pool, ticket))
            if cell:
                held.append((ticket, cell & OWNER_BITS, bool(cell & CELL_PASSED_OVER)))
        return held

    def owners(self):
        """Return the owners of memory that is allocated and not used yet: a set of owner bits of state words."""
        cdef uint64_t slot, state, last = 0
        found = set()
        for slot in range(self.pool.slots.slot_count):
            state = load_relaxed(&_header(&self.pool, slot).state)
            if state & STATE_MASK == STATE_ALLOCATED and state != last:
                found.add(state & OWNER_BITS)
                last = state
        return found

    cdef _ends(self, uint64_t *head, uint64_t *tail):
        if not queue_ends_now(&self.pool, head, tail):
            raise self._wrong_queue(head[0], tail[0])

    cdef _check(self, const Damage *damage):
        """Raise the error for a damage that a section has found."""
        if damage.kind == WRONG_BITMAP:
            raise self.damaged(
                f"its bitmap says that slot {damage.first} is free, of {self.pool.slots.slot_count}"
            )
        if damage.kind == WRONG_QUEUE:
            raise self._wrong_queue(damage.first, damage.second)

    cdef _wrong_queue(self, uint64_t head, uint64_t tail):
        return self.damaged(f"its waiter queue begins at ticket {head} and ends at {tail}, of {WAITERS}")


cdef uint64_t _within(uint64_t number, uint64_t most) noexcept nogil:
    """Return the number that is at least 1, and at most `most`."""
    return 1 if number == 0 else most if number > most else number


cdef Buffer _append_buffer(list taken):
    """Append an empty handle, since a section cannot make any; return it."""
    buffer = Buffer()
    taken.append(buffer)
    return buffer


cdef void _fill(list taken, Buffer buffer, const Handle *handle, bint is_taken):
    """Fill the handle that `_append_buffer` made, or remove it."""
    if is_taken:
        buffer.slot, buffer.slots, buffer.generation = handle.slot, handle.slots, handle.generation
    else:
        taken.pop()


cdef _begin(Look *look, dead, double now_s, double absent_s):
    """Begin a look: note which owners are dead."""
    cdef uint64_t owner
    memset(look, 0, sizeof(Look))
    look.now_s, look.absent_s, look.waiter, look.number = now_s, absent_s, -1, -1
    for owner in dead:
        if look.dead.count < MOST_DEAD:  # the next look has the others
            look.dead.owners[look.dead.count] = owner & OWNER_BITS
            look.dead.count += 1
