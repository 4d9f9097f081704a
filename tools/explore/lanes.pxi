"""Lanes: two processes use one transactional id, and the sender sends or fails what they append.

Process 0 is in a transaction. Process 1 leases the lane from it, at any time, and begins a transaction under the next
epoch. Each appends a record, ends its transaction, and commits it if its lease is still valid once the lane is empty.
No record may be sent under the other's epoch; each record of a committed transaction is sent; and nothing stays in a
lane that is closed. The slots that a batch needs are the process's from the start, and are not used again: `batches`
has the pool.
"""

cdef enum:
    FIRST_LEASE = 1 << LEASE_SHIFT
    PRODUCER_ID = 7


cdef TableSet tables_of() noexcept nogil:
    cdef TableSet tables
    memset(&tables, 0, sizeof(TableSet))
    tables.superblock = &shared.superblock
    tables.line = &shared.locks[LOCK_TABLES]
    tables.partitions, tables.lanes = &shared.partition, &shared.lane
    tables.sizes.max_partitions = tables.sizes.max_lanes = 1
    return tables


cdef Queue lane_queue(const Deques *deques, uint64_t generation) noexcept nogil:
    cdef Queue queue = queue_of(deques, 0)
    queue.lane, queue.lane_generation = &shared.lane, generation
    return queue


cdef bint is_dead_holder(uint64_t holder) noexcept nogil:
    return holder != 0 and explore_is_dead(<int>(holder & UNFINISHED) - 1)


cdef bint lane_is_empty() noexcept nogil:
    """Look whether no batch is queued or in flight, as `LaneTable.is_empty`."""
    cdef Pool pool = pool_of()
    cdef int slot
    for slot in range(2):
        if load_acquire(&_header(&pool, slot).state) & STATE_MASK >= STATE_OPEN:
            return False
    return True


# --- a producer -----------------------------------------------------------------------------------


cdef bint append_in_lane(int me, uint64_t generation) noexcept nogil:
    """Append a record to the lane's deque, as `RecordAppender`; return whether it is accepted."""
    cdef Mine mine
    cdef Handle handle
    cdef Record record
    cdef Damage damage
    cdef uint8_t number
    cdef bint has_batch = False
    cdef int status
    memset(&mine, 0, sizeof(Mine))
    memset(&handle, 0, sizeof(Handle))
    mine.me, mine.producer = me, appending_of()
    mine.queue = lane_queue(&mine.producer.deques, generation)
    handle.slot, handle.slots, handle.generation = <uint64_t>me, 1, 0
    set_record(&record, me, 0, &number)
    memset(&damage, 0, sizeof(Damage))
    while True:
        if has_batch:
            status = append_batch(
                &mine.producer, &mine.queue, mine.made, me, my_ticket(), handle.slot, &record, &damage
            )
        else:
            status = append_record(&mine.producer, &mine.queue, mine.made, me, my_ticket(), &record, &damage)
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        if status == LOCK_BUSY:
            wait_for_lock(stripe_line())
        elif status == APPEND_NO_ROOM and not has_batch:
            begin_first(&mine.producer, 0, &handle, 0, &record)
            mine.made[me].batch, has_batch = handle.slot, True
        else:
            explore_assert(status == LOCK_TAKEN or status == APPEND_LEASE_OVER, b"an append in a lane fails")
            explore_note(&shared.ghost.rung, 1)
            return status == LOCK_TAKEN


cdef void pass_through() noexcept nogil:
    """Take the stripe's lock and release it: an append that began before has ended then."""
    cdef int status = lock_spin(stripe_line(), NULL, my_ticket(), 0)
    while status == LOCK_BUSY:
        wait_for_lock(stripe_line())
        status = lock_spin(stripe_line(), NULL, my_ticket(), 0)
    lock_release(stripe_line(), NULL, status == LOCK_UNFINISHED)


cdef bint end_transaction(uint64_t generation) noexcept nogil:
    """End a transaction, as `LaneLease.end_transaction`; return whether the lease is valid."""
    cdef TableSet tables = tables_of()
    cdef Damage damage
    cdef bint is_valid = False
    memset(&damage, 0, sizeof(Damage))
    while end_lane(&tables, my_ticket(), 0, generation, &is_valid, &damage) == LOCK_BUSY:
        wait_for_lock(tables.line)
    pass_through()
    return is_valid


cdef bint wait_until_empty() noexcept nogil:
    """Wait as `LaneLease.wait_until_empty`; return False if the sender is dead, which another one would replace."""
    cdef uint64_t finished
    explore_note(&shared.ghost.rung, 1)
    while True:
        finished = explore_peek(&shared.ghost.finished)
        if lane_is_empty():
            return True
        if explore_is_dead(2):
            return False
        explore_await(&shared.ghost.finished, finished, explore_looks())


cdef void commit(int me, uint64_t generation) noexcept nogil:
    """Append the record of a transaction, and commit it. The broker refuses one whose lease is not valid."""
    cdef TableSet tables = tables_of()
    cdef bint is_accepted = append_in_lane(me, generation), is_valid = end_transaction(generation)
    if wait_until_empty() and is_valid and is_accepted and _is_lease(tables.lanes, generation):
        explore_note(&shared.ghost.committed[me], 1)


cdef void begin_again(int me) noexcept nogil:
    """Lease the lane, and open it under the next epoch once it is empty, as `init_transactions` does."""
    cdef TableSet tables = tables_of()
    cdef Damage damage
    cdef Name name
    cdef LaneTerms terms
    cdef int64_t entry = -1
    cdef uint64_t generation = 0, partition = 0
    cdef bint is_valid = False
    memset(&terms, 0, sizeof(LaneTerms))
    name.text, name.size = b"id", 2
    terms.producer_id, terms.epoch = PRODUCER_ID, <uint64_t>me
    memset(&damage, 0, sizeof(Damage))
    while lease_lane(&tables, my_ticket(), &name, -1, 0, &entry, &generation, &damage) == LOCK_BUSY:
        wait_for_lock(tables.line)
    explore_assert(entry == 0, b"a transactional id has another lane than before")
    end_transaction(generation)
    explore_note(&shared.ghost.rung, 1)
    if commits or not wait_until_empty():
        return
    while open_lane(
        &tables, my_ticket(), 0, generation + 1, &terms, &partition, 1, &is_valid, &damage
    ) == LOCK_BUSY:
        wait_for_lock(tables.line)
    explore_assert(is_valid and damage.kind == SOUND, b"a lane that another process leased is opened")
    commit(me, generation + 1)


# --- the sender -----------------------------------------------------------------------------------


cdef void finish(const Deques *deques, uint64_t slot) noexcept nogil:
    """Complete a batch and free it: all that the holder of the lane sees of that."""
    explore_note(&header_of(&deques.slots, slot).state, STATE_FREE)
    explore_note(&shared.ghost.finished, explore_peek(&shared.ghost.finished) + 1)


cdef void take_lane_from_dead() noexcept nogil:
    cdef TableSet tables = tables_of()
    cdef Damage damage
    cdef uint64_t holder = load_acquire(&shared.lane.holder)
    memset(&damage, 0, sizeof(Damage))
    if is_dead_holder(holder):
        while take_lane(&tables, my_ticket(), 0, holder, &damage) == LOCK_BUSY:
            wait_for_lock(tables.line)


cdef void drop_closed(const Deques *deques, uint64_t *seen) noexcept nogil:
    """Fail what is queued in a closed lane, as `SenderAccumulator.drop_closed_lanes`."""
    cdef Queue queue = lane_queue(deques, 0)
    cdef Damage damage
    cdef uint64_t head, changed = load_acquire(&shared.superblock.lanes_changed)
    cdef bint taken = True
    memset(&damage, 0, sizeof(Damage))
    if changed == seen[0]:
        return
    seen[0] = changed
    if load_acquire(&shared.lane.producer_id):
        return
    pass_through()
    while taken:
        head, taken = load_acquire(&shared.partition.head), False
        if not head:
            break
        while take_first(deques, &queue, my_ticket(), head - 1, YOUNG, &taken, &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        if taken:
            finish(deques, head - 1)
    if not lane_is_empty():
        seen[0] = ALL_BITS  # look again in the next pass


cdef void send_numbered(const Deques *deques, uint64_t slot) noexcept nogil:
    """Number a batch that was taken, and send it, as `Sequences.drained`; fail it if its lane is closed by now."""
    cdef SlotHeader *header = header_of(&deques.slots, slot)
    cdef uint64_t producer_id = load_acquire(&shared.lane.producer_id), logged = explore_peek(&shared.ghost.logged)
    cdef uint64_t following = load_relaxed(&shared.partition.next_sequence)
    cdef uint64_t epoch = following >> EPOCH_SHIFT
    if producer_id and load_relaxed(&header.sequence) >> EPOCH_SHIFT != epoch + 1:
        number_batch(header, producer_id - 1, epoch, following & SEQUENCE_MASK)
        store_release(&shared.partition.next_sequence, epoch << EPOCH_SHIFT | end_sequence_of(header))
    if producer_id and load_relaxed(&shared.lane.producer_id) == producer_id:
        deliver(slot)
        shared.ghost.epoch[logged] = (explore_peek(&header.sequence) >> EPOCH_SHIFT) - 1
    finish(deques, slot)


cdef bint is_left(LockLine *line) noexcept nogil:
    """Return whether a lock's last holder has died within."""
    cdef uint64_t owner = load_acquire(&line.owner)
    return owner == UNFINISHED or is_dead_holder(owner)


cdef void rebuild_after_dead(const Deques *deques) noexcept nogil:
    """Rebuild what a dead process has left in the middle of a change, as `Slab.reap_dead`."""
    cdef TableSet tables = tables_of()
    cdef Damage damage
    memset(&damage, 0, sizeof(Damage))
    if is_left(stripe_line()):
        while rebuild_stripe(deques, 0, my_ticket(), &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
    if is_left(tables.line):
        while rebuild_tables(&tables, my_ticket(), &damage) == LOCK_BUSY:
            wait_for_lock(tables.line)
    explore_assert(damage.kind == SOUND, b"what a death left cannot be rebuilt")


cdef void pass_over_lane(uint64_t *seen) noexcept nogil:
    cdef Appending producer = appending_of()
    cdef Candidate batch
    cdef Damage damage
    cdef uint64_t taken
    rebuild_after_dead(&producer.deques)
    take_lane_from_dead()
    drop_closed(&producer.deques, seen)
    while load_acquire(&shared.lane.producer_id):
        batch.entry, batch.slot, batch.size = 0, load_acquire(&shared.partition.head) - 1, SLOTS * SLOT_SIZE
        if batch.slot == ALL_BITS:
            return
        taken = 0
        memset(&damage, 0, sizeof(Damage))
        while drain_stripe(&producer.deques, my_ticket(), &batch, 1, &taken, &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        if taken:
            send_numbered(&producer.deques, batch.slot)


cdef void lane_sender() noexcept nogil:
    """Make passes whenever somebody rings, or has died, until the producers are over."""
    cdef uint64_t seen = ALL_BITS
    cdef int looks
    cdef int number
    cdef bint is_last = False
    while not is_last:
        looks = explore_looks()
        explore_note(&shared.ghost.rung, 0)
        is_last = True
        for number in range(2):
            is_last = is_last and (explore_peek(&shared.ghost.over[number]) or explore_is_dead(number))
        pass_over_lane(&seen)
        if not is_last:
            explore_await(&shared.ghost.rung, 0, looks)


cdef void lanes_body(int me) noexcept nogil:
    if me == 2:
        lane_sender()
        return
    if me == 1:
        begin_again(1)
    elif commits:
        commit(0, FIRST_LEASE)
    else:
        append_in_lane(0, FIRST_LEASE)
    explore_note(&shared.ghost.over[me], 1)
    explore_note(&shared.ghost.rung, 1)


# --- in the end -----------------------------------------------------------------------------------


cdef void succeed() noexcept nogil:
    """Be the sender after a dead one: what was in flight goes back to its deque, or is sent under the same number."""
    cdef Appending producer = appending_of()
    cdef Pool pool = pool_of()
    cdef Damage damage
    cdef uint64_t seen = ALL_BITS
    cdef int slot
    memset(&damage, 0, sizeof(Damage))
    if rebuild_stripe(&producer.deques, 0, my_ticket(), &damage) != LOCK_TAKEN:
        explore_assert(False, b"a deque cannot be rebuilt")
    for slot in range(2):
        if explore_peek(&_header(&pool, slot).state) & STATE_MASK == STATE_IN_FLIGHT:
            put_back_first(&producer.deques, slot)
    pass_over_lane(&seen)


cdef const char *lanes_check(bint is_over) noexcept nogil:
    cdef int index, owner
    cdef bint is_sent[2]
    if not is_over:
        return NULL
    take_over(&shared.locks[LOCK_TABLES])
    take_over(stripe_line())
    if explore_is_dead(2):
        succeed()
    explore_assert(lane_is_empty(), b"a batch stays in a lane that is closed")
    memset(is_sent, 0, sizeof(is_sent))
    for index in range(<int>explore_peek(&shared.ghost.logged)):
        owner = <int>(shared.ghost.records[index] - 1) // MOST_TURNS
        explore_assert(shared.ghost.epoch[index] == <uint64_t>owner, b"a record is sent in another's transaction")
        is_sent[owner] = True
    for owner in range(2):
        explore_assert(
            is_sent[owner] or not explore_peek(&shared.ghost.committed[owner]), b"a committed record is lost"
        )
    return NULL


cdef void set_up_lane() noexcept nogil:
    """Let process 0 be in a transaction, of epoch 0, and each have a slot."""
    cdef Pool pool = pool_of()
    cdef uint64_t slot
    memcpy(shared.lane.id, b"id", 2)
    store_relaxed(&shared.lane.id_length, 2)
    store_relaxed(&shared.lane.generation, FIRST_LEASE)
    store_relaxed(&shared.lane.producer_id, PRODUCER_ID + 1)
    store_relaxed(&shared.lane.holder, ticket_at(0))
    store_relaxed(&shared.superblock.lane_count, 1)
    store_relaxed(&shared.partition.key, 1 << KEY_LANE_SHIFT)
    store_relaxed(shared.bitmap, (1 << SLOTS) - 4)
    for slot in range(2):
        store_relaxed(&_header(&pool, slot).state, slot << OWNER_SHIFT | STATE_ALLOCATED)
        store_relaxed(&_header(&pool, slot).slots, 1)
