"""The lock, the pool and its waiters: what a few processes do at once, and what must hold in each state.

A process's number is its entry in the process table. What is said of processes in `Ghost` is the explorer's own note:
no process reads it, except to say what it does.
"""

cdef extern from "<semaphore.h>" nogil:
    int sem_init(sem_t *semaphore, int shared, unsigned int value)


cdef enum:
    MOST = 3  # processes, and slots
    HEADER_SIZE = 320


cdef struct Ghost:
    int inside[MOST]  # in the critical section
    int half_done  # what the lock guards is in the middle of a change
    word owner[MOST]  # of each slot, + 1; 0 if free
    word batch  # first slot + 1 of the buffer that another process adds slots to, and its generation
    word generation
    word wake[MOST]  # wake-ups of each process


cdef struct Shared:
    LockLine line
    sem_t gate
    Ghost ghost
    Superblock superblock
    ProcessEntry processes[MOST]
    word bitmap[1]
    WaiterCell cells[WAITERS]
    char headers[MOST * HEADER_SIZE]


cdef Shared shared
cdef int processes = 0
cdef int slot_count = 0
cdef int wanted = 1
cdef bint has_gate = False
cdef int turns = 2
cdef int of_turn = 1  # how many slots a waiter may take once it is served


cdef sem_t *gate_of() noexcept nogil:
    return &shared.gate if has_gate else NULL


cdef void wait_for_lock() noexcept nogil:
    """Wait for the lock as `SlabLock` does when a slice has run out; a living holder lets it go in the end."""
    cdef uint64_t owner = load_acquire(&shared.line.owner)
    cdef int status
    if owner == 0 or owner == UNFINISHED:
        status = lock_try_word(&shared.line, ticket_at(explore_current()))
    elif explore_is_dead(<int>(owner & UNFINISHED) - 1):
        status = lock_take_over(&shared.line, owner, ticket_at(explore_current()))
    else:
        explore_await(&shared.line.owner, owner, explore_looks())
        return
    if status != LOCK_BUSY:
        lock_release(&shared.line, gate_of(), status == LOCK_UNFINISHED)


cdef int all_shared(const void *at, int me, bint stores) noexcept nogil:
    return SHARED


cdef int guarded(const void *at, int me, bint stores) noexcept nogil:
    """Return the reach of an access: the lock guards all but the wake-ups, and its own word until it is free.

    Who tries to take it meanwhile can only try again.
    """
    if is_within(at, &shared.ghost, sizeof(Ghost)) or <int>(explore_peek(&shared.line.owner) & UNFINISHED) - 1 != me:
        return SHARED
    return SHARED if at == &shared.line.owner and explore_has_buffers() else ALONE


# --- the lock -------------------------------------------------------------------------------------


cdef void lock_body(int me) noexcept nogil:
    """Take the lock twice; change what it guards in two steps, and rebuild what a dead holder left."""
    cdef int _turn, status
    for _turn in range(turns):
        status = lock_spin(&shared.line, gate_of(), ticket_at(me), 0)
        while status == LOCK_BUSY:
            wait_for_lock()
            status = lock_spin(&shared.line, gate_of(), ticket_at(me), 0)
        shared.ghost.inside[me] = 1
        if status == LOCK_UNFINISHED:
            shared.ghost.half_done = 0
        explore_assert(not shared.ghost.half_done, b"a holder works on what a dead one left half-done")
        shared.ghost.half_done = 1
        explore_step()
        shared.ghost.half_done = 0
        explore_step()
        shared.ghost.inside[me] = 0
        lock_release(&shared.line, gate_of(), False)


cdef const char *lock_check(bint is_over) noexcept nogil:
    cdef int number, inside = 0, units = 0
    for number in range(processes):
        if shared.ghost.inside[number] and not explore_is_dead(number):
            inside += 1
    if inside > 1:
        return b"two processes are inside"
    if has_gate and not sem_getvalue(&shared.gate, &units) and units > processes:
        return b"units of the gate pile up"
    return NULL


# --- the pool -------------------------------------------------------------------------------------


cdef Pool make_pool() noexcept nogil:
    cdef Pool pool
    memset(&pool, 0, sizeof(Pool))
    pool.superblock = &shared.superblock
    pool.line = &shared.line
    pool.gate = gate_of()
    pool.processes = <char *>shared.processes
    pool.bitmap = shared.bitmap
    pool.cells = shared.cells
    pool.slots.headers = shared.headers
    pool.slots.header_size = HEADER_SIZE
    pool.slots.slot_count = slot_count
    pool.max_processes = MOST
    pool.most_at_once = of_turn
    pool.seen_ticket = pool.woken_ticket = ALL_BITS
    return pool


cdef void note_taken(int me, Pool *pool, const Handle *handle) noexcept nogil:
    """Note whose the slots of a buffer are."""
    cdef int64_t slot = <int64_t>handle.slot
    cdef uint64_t left = handle.slots
    cdef int owner
    while left and slot >= 0:
        owner = <int>explore_peek(&shared.ghost.owner[slot])
        explore_assert(not owner or explore_is_dead(owner - 1), b"a slot is given to a second process")
        explore_assert(not is_of_batch(pool, slot), b"a slot of a buffer that has grown is given to a second process")
        explore_note(&shared.ghost.owner[slot], <uint64_t>me + 1)
        left -= 1
        slot = <int64_t>explore_peek(&_header(pool, slot).chain) - 1 if left else -1
    explore_assert(left == 0, b"a chain ends before its last slot")


cdef bint is_of_batch(Pool *pool, int64_t wanted) noexcept nogil:
    """Return whether a slot is one of those that the growing buffer counts, if that is taken."""
    cdef int64_t slot = <int64_t>explore_peek(&shared.ghost.batch) - 1
    cdef uint64_t left
    if slot < 0 or explore_peek(&_header(pool, slot).generation) != explore_peek(&shared.ghost.generation):
        return False
    left = explore_peek(&_header(pool, slot).slots) if explore_peek(&_header(pool, slot).state) & STATE_MASK else 0
    while left and slot >= 0 and slot != wanted:
        left -= 1
        slot = <int64_t>explore_peek(&_header(pool, slot).chain) - 1
    return left and slot == wanted


cdef bint is_whole(Pool *pool) noexcept nogil:
    """Return whether all slots that the growing buffer counts are linked: the sender reads them without the lock."""
    cdef int64_t slot = <int64_t>explore_peek(&shared.ghost.batch) - 1
    cdef uint64_t left
    if slot < 0 or explore_peek(&_header(pool, slot).generation) != explore_peek(&shared.ghost.generation):
        return True
    left = explore_peek(&_header(pool, slot).slots) if explore_peek(&_header(pool, slot).state) & STATE_MASK else 0
    while left > 1 and slot >= 0:
        left -= 1
        slot = <int64_t>explore_peek(&_header(pool, slot).chain) - 1
    return slot >= 0


cdef void note_freed(int me) noexcept nogil:
    cdef int slot
    for slot in range(slot_count):
        if explore_peek(&shared.ghost.owner[slot]) == <uint64_t>me + 1:
            explore_note(&shared.ghost.owner[slot], 0)


cdef void free_buffer(int me, Pool *pool, const Handle *handle) noexcept nogil:
    """Free a buffer, and wake whom that serves."""
    cdef Damage damage
    cdef uint64_t freed = 0
    cdef int64_t waiter = -1
    damage.kind = SOUND
    note_freed(me)
    while pool_free(pool, ticket_at(me), handle, 1, &freed, &waiter, &damage) == LOCK_BUSY:
        wait_for_lock()
    explore_assert(freed == 1, b"an allocated buffer is not freed")
    explore_assert(damage.kind == SOUND, b"damage where there is none")
    if waiter >= 0:
        store_release(&shared.ghost.wake[waiter], 1)


cdef void pool_body(int me) noexcept nogil:
    """Allocate, and free what was got."""
    cdef Pool pool = make_pool()
    cdef Handle handle
    cdef Damage damage
    cdef bint is_taken = False
    cdef uint64_t count = wanted if me == 0 else 1
    damage.kind = SOUND
    while pool_allocate(&pool, ticket_at(me), count, &handle, &is_taken, &damage) == LOCK_BUSY:
        wait_for_lock()
    explore_assert(damage.kind == SOUND, b"damage where there is none")
    if is_taken:
        note_taken(me, &pool, &handle)
        explore_step()
        free_buffer(me, &pool, &handle)


cdef void growth_body(int me) noexcept nogil:
    """The first process allocates a buffer and frees it, the second adds slots to it; others allocate and free.

    The slots are its own ones, and then free ones.
    """
    cdef Pool pool = make_pool()
    cdef Handle handle
    cdef Damage damage
    cdef Handle own
    cdef bint is_taken = False
    cdef bint grew = False
    damage.kind = SOUND
    if me > 1:
        pool_body(me)
    elif me == 0:
        while pool_allocate(&pool, ticket_at(me), 1, &handle, &is_taken, &damage) == LOCK_BUSY:
            wait_for_lock()
        if is_taken:
            note_taken(me, &pool, &handle)
            explore_note(&shared.ghost.generation, handle.generation)
            store_release(&shared.ghost.batch, handle.slot + 1)
            explore_step()
            free_buffer(me, &pool, &handle)
    else:
        handle.slot, handle.slots = load_acquire(&shared.ghost.batch) - 1, 1
        handle.generation = explore_peek(&shared.ghost.generation)
        grew = handle.slot != ALL_BITS
        while grew and pool_allocate(&pool, ticket_at(me), wanted, &own, &is_taken, &damage) == LOCK_BUSY:
            wait_for_lock()
        if is_taken:
            note_taken(me, &pool, &own)
            note_freed(me)
            grew = False
            while pool_extend(&pool, ticket_at(me), &handle, &own, &grew, &damage) == LOCK_BUSY:
                wait_for_lock()
            if not grew:
                free_buffer(me, &pool, &own)
        while grew:
            grew = False
            while pool_grow(&pool, ticket_at(me), &handle, &grew, &damage) == LOCK_BUSY:
                wait_for_lock()
    explore_assert(damage.kind == SOUND, b"damage where there is none")


cdef void fill_dead(Dead *dead) noexcept nogil:
    cdef int number
    memset(dead, 0, sizeof(Dead))
    for number in range(processes):
        if explore_is_dead(number):
            dead.owners[dead.count] = _owner_of(ticket_at(number))
            dead.count += 1


cdef void reclaim(int me, Pool *pool) noexcept nogil:
    """Free what the dead have left, as the sender does from time to time; wake whom that serves."""
    cdef Look look
    cdef Damage damage
    cdef uint64_t reclaimed = 0
    memset(&look, 0, sizeof(Look))
    look.absent_s, look.waiter, damage.kind = 1000, -1, SOUND
    fill_dead(&look.dead)
    if not has_dead():
        return
    while pool_reclaim(pool, ticket_at(me), &look, &reclaimed, &damage) == LOCK_BUSY:
        wait_for_lock()
    if look.waiter >= 0:
        store_release(&shared.ghost.wake[look.waiter], 1)


cdef bint has_dead() noexcept nogil:
    cdef int number
    for number in range(processes):
        if explore_is_dead(number):
            return True
    return False


cdef void waiting_body(int me) noexcept nogil:
    """Wait for memory in the queue, take another slot if it is our turn, and free what was got."""
    cdef Pool pool = make_pool()
    cdef Handle handle, more
    cdef Look look
    cdef Damage damage
    cdef bint is_taken = False
    cdef int looks
    memset(&look, 0, sizeof(Look))
    look.number, look.slots, look.was_woken, look.waiter = -1, wanted if me == 0 else 1, -1, -1
    look.timeout_s, look.absent_s = 1000, 1000
    while True:
        damage.kind, look.waiter, look.changed = SOUND, -1, False
        looks = explore_looks()
        fill_dead(&look.dead)
        while pool_look(&pool, ticket_at(me), &look, &handle, &damage) == LOCK_BUSY:
            wait_for_lock()
        explore_assert(damage.kind == SOUND, b"damage where there is none")
        if look.waiter >= 0 and not look.is_served:
            store_release(&shared.ghost.wake[look.waiter], 1)
        if look.is_served:
            break
        reclaim(me, &pool)
        explore_await(&shared.ghost.wake[me], 0, looks)
        look.was_woken = explore_peek(&shared.ghost.wake[me]) != 0
        explore_note(&shared.ghost.wake[me], 0)
    note_taken(me, &pool, &handle)
    leave_queue(me, &pool, look.number)
    while of_turn > 1 and pool_allocate(&pool, ticket_at(me), 1, &more, &is_taken, &damage) == LOCK_BUSY:
        wait_for_lock()
    if is_taken:
        note_taken(me, &pool, &more)
    free_buffer(me, &pool, &handle)
    if is_taken:
        note_taken(me, &pool, &more)  # no other process has got it meanwhile
        free_buffer(me, &pool, &more)


cdef void leave_queue(int me, Pool *pool, int64_t number) noexcept nogil:
    cdef Damage damage
    cdef int64_t waiter = -1
    damage.kind = SOUND
    while pool_leave(pool, ticket_at(me), number, 0, False, &waiter, &damage) == LOCK_BUSY:
        wait_for_lock()
    if waiter >= 0:
        store_release(&shared.ghost.wake[waiter], 1)


cdef const char *pool_check(bint is_over) noexcept nogil:
    """At the end, another process takes the lock over, reclaims what the dead left, and finds every slot free.

    Without a death there is nothing to repair.
    """
    cdef Pool pool = make_pool()
    cdef Look look
    cdef Damage damage
    cdef uint64_t reclaimed = 0, owner
    cdef int slot
    if not is_whole(&pool):
        return b"a slot counts that is not linked"
    if not is_over:
        return NULL
    memset(&look, 0, sizeof(Look))
    look.absent_s, damage.kind = 1000, SOUND
    fill_dead(&look.dead)
    owner = explore_peek(&shared.line.owner)
    if owner and owner != UNFINISHED:
        if not explore_is_dead(<int>(owner & UNFINISHED) - 1):
            return b"the lock is left to a process that has ended"
        lock_release(&shared.line, gate_of(), lock_take_over(&shared.line, owner, ticket_at(MOST)) != LOCK_BUSY)
    elif owner == 0:
        _open_gate(gate_of())
    if has_dead() and pool_reclaim(&pool, ticket_at(MOST), &look, &reclaimed, &damage) != LOCK_TAKEN:
        return b"the lock cannot be taken"
    for slot in range(slot_count):
        if explore_peek(&_header(&pool, slot).state) & STATE_MASK != STATE_FREE:
            return b"a slot is never freed"
    if explore_peek(shared.bitmap) != (<uint64_t>1 << slot_count) - 1:
        return b"the bitmap is wrong in the end"
    if explore_peek(&shared.superblock.free_slots) != <uint64_t>slot_count:
        return b"the number of free slots is wrong in the end"
    if explore_peek(&shared.superblock.waiter_head) != explore_peek(&shared.superblock.waiter_tail):
        return b"a ticket stays in the queue"
    return NULL


# --- for Python code ------------------------------------------------------------------------------


cdef void prepare(int number_of_processes, int slots, int of_first, bint gate) noexcept:
    global processes, slot_count, wanted, has_gate
    processes, slot_count, wanted, has_gate = number_of_processes, slots, of_first, gate
    memset(&shared, 0, sizeof(Shared))
    sem_init(&shared.gate, 1, 1)
    store_relaxed(&shared.superblock.free_slots, slots)
    store_relaxed(shared.bitmap, (<uint64_t>1 << slots) - 1)


def run(str name, int number, int deaths, int slots=2, int of_first=1, bint gate=False, bint buffers=False):
    """Explore a scenario.

    Args:
        name: of the scenario: lock, pool, growth, waiters, or turns: waiters that take more once they are served.
        number: of processes.
        deaths: most of them that die.
        slots: of the pool.
        of_first: how many slots the first process wants; in *growth*, how many the second one adds at a time.
        gate: whether the lock has its semaphore.
        buffers: whether stores wait in store buffers.

    Returns:
        As of `found`.
    """
    cdef const char *violation
    cdef uint64_t size
    global turns, of_turn
    turns, of_turn = 1 if number > 2 else 2, 2 if name == "turns" else 1
    prepare(number, slots, of_first, gate)
    if name == "lock":
        size = <char *>&shared.superblock - <char *>&shared
        violation = explore(number, deaths, <char *>&shared, size, lock_body, lock_check, all_shared, buffers)
    elif name == "pool":
        violation = explore(number, deaths, <char *>&shared, sizeof(Shared), pool_body, pool_check, guarded, buffers)
    elif name == "growth":
        violation = explore(number, deaths, <char *>&shared, sizeof(Shared), growth_body, pool_check, guarded, buffers)
    else:
        violation = explore(number, deaths, <char *>&shared, sizeof(Shared), waiting_body, pool_check, guarded, buffers)
    return found(violation)
