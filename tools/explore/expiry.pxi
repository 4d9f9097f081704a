"""Expiry: producers append and flush, and the sender fails what is older than its `delivery.timeout.ms`.

The timeout of producer p is p + 1. In each pass of the sender its clock can go on, the broker can get a batch or not,
and answer or not. A batch expires in its deque, open or closed, before or after an attempt, and in flight. One batch is
in flight at a time, besides those that have expired there: so order needs no sequence numbers.

What each completion says must be so: a record of which it says "stored" is in the log. One that failed is not sent any
more, and its producer's time has passed. A living producer gets one completion for each record.
"""

cdef struct Sending:
    # What the sender knows of its requests: bits by slot. Which ones have no answer, which ones the broker has.
    uint64_t sent
    uint64_t stored
    int left  # that the broker may still fail to get, or to answer


cdef void note_outcome(int me, const Outcome *outcome) noexcept nogil:
    """Note what a completion says of this process's records in a batch."""
    cdef uint64_t said = (outcome.result & ERROR_CODE_MASK) + 1
    cdef int turn
    for turn in range(turns):
        if shared.ghost.place[me][turn] != outcome.batch + 1:
            continue
        explore_assert(
            shared.ghost.said[me][turn] == 0 or explore_is_dead(processes - 1), b"a completion comes twice"
        )
        explore_assert(
            shared.ghost.said[me][turn] == 0 or shared.ghost.said[me][turn] == said, b"two completions contradict"
        )
        shared.ghost.said[me][turn] = said


cdef bint is_told(int me) noexcept nogil:
    cdef int turn
    for turn in range(turns):
        if not shared.ghost.said[me][turn]:
            return False
    return True


cdef void append_and_flush(int me) noexcept nogil:
    cdef Mine mine
    cdef int turn
    memset(&mine, 0, sizeof(Mine))
    mine.me, mine.producer = me, appending_of()
    mine.producer.limits = mine.producer.timeout_ms = <uint64_t>me + 1
    mine.queue = queue_of(&mine.producer.deques, 0)
    for turn in range(turns):
        append(&mine, turn)
        explore_note(&shared.ghost.rung, 1)
    while not is_told(me) and not explore_is_dead(processes - 1):
        explore_await(&shared.processes[me].ring_tail, mine.head, explore_looks())
        read_ring(&mine)


# --- the sender -----------------------------------------------------------------------------------


cdef bint has_expired(const SlotHeader *header, uint64_t limits) noexcept nogil:
    """Return whether a batch has expired, as `BatchExpirer._has_expired`."""
    return (load_relaxed(&header.created_ms) & TIME_MASK) + (limits & LIMITS_MASK) <= shared.ghost.now


cdef uint64_t numbers_in(uint64_t slot, uint64_t begin, uint64_t end) noexcept nogil:
    """Return the numbers of some of a batch's records, one byte each, the first one lowest."""
    cdef const SlotHeader *header = <SlotHeader *>(shared.headers + slot * HEADER_SIZE)
    cdef uint64_t numbers = 0, commit = explore_peek(&header.commit), base = explore_peek(&header.base_timestamp)
    explore_assert(
        decode(shared.slots + slot * slot_size, commit >> COMMIT_SIZE_SHIFT, <int64_t>base, &numbers),
        b"a batch that is sent, or fails, is torn",
    )
    return (numbers & (1ULL << 8 * end) - 1) >> 8 * begin


cdef void note_failure(uint64_t slot, uint64_t numbers) noexcept nogil:
    """Note that records have failed."""
    cdef const SlotHeader *header = <SlotHeader *>(shared.headers + slot * HEADER_SIZE)
    cdef uint64_t index = explore_peek(&shared.ghost.failures)
    shared.ghost.failed[index] = explore_peek(&header.generation) << BATCH_SLOT_BITS | slot
    shared.ghost.failed_records[index] = numbers
    explore_note(&shared.ghost.failures, index + 1)


cdef void check_time(uint64_t numbers) noexcept nogil:
    """Check that it is past the time of each record's producer."""
    while numbers:
        explore_assert(
            ((numbers & 0xFF) - 1) // MOST_TURNS + 1 <= shared.ghost.now, b"a record fails before its producer's time"
        )
        numbers >>= 8


cdef void fail(uint64_t slot) noexcept nogil:
    """Store that a batch has expired, or what is left of it."""
    cdef SlotHeader *header = <SlotHeader *>(shared.headers + slot * HEADER_SIZE)
    cdef uint64_t count = explore_peek(&header.commit) >> 1 & COMMIT_COUNT_MASK
    cdef uint64_t numbers = numbers_in(slot, explore_peek(&header.completed) & PROGRESS_MASK, count)
    conclude_batch(header, count, 0, EXPIRED)
    note_failure(slot, numbers)
    check_time(numbers)


cdef void push(uint64_t slot, bint again) noexcept nogil:
    cdef Pool pool = pool_of()
    cdef Rings rings = all_rings()
    rings_push(&rings, _header(&pool, slot), slot, again)


cdef void free_batch(uint64_t slot) noexcept nogil:
    cdef Pool pool = pool_of()
    cdef Handle handle
    handle.slot, handle.slots = slot, load_relaxed(&_header(&pool, slot).slots)
    handle.generation = load_relaxed(&_header(&pool, slot).generation)
    give_back(&handle)


cdef int take_expired(const Deques *deques, uint64_t *slots) noexcept nogil:
    """Take the first batches of a deque while they have expired, as `BatchExpirer._take_from`; return their number."""
    cdef Queue queue = queue_of(deques, 0)
    cdef Damage damage
    cdef uint64_t limits, head = load_acquire(&shared.partition.head)
    cdef int count = 0
    cdef bint taken
    while head:
        limits = load_relaxed(&header_of(&deques.slots, head - 1).limits)
        if not has_expired(header_of(&deques.slots, head - 1), limits):
            break
        taken, damage.kind = False, SOUND
        while take_first(deques, &queue, my_ticket(), head - 1, limits, &taken, &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        if taken:
            slots[count] = head - 1
            count += 1
        head = load_acquire(&shared.partition.head)
    return count


cdef bint is_in_flight(const Deques *deques, uint64_t slot) noexcept nogil:
    return load_acquire(&header_of(&deques.slots, slot).state) & STATE_MASK == STATE_IN_FLIGHT


cdef int find_expired(const Deques *deques, uint64_t sent, uint64_t *slots) noexcept nogil:
    """Find what has expired in flight, as `BatchExpirer._expired_in_flight`; return their number."""
    cdef uint64_t slot
    cdef int count = 0
    for slot in range(<uint64_t>SLOTS):
        if not sent >> slot & 1 or not is_in_flight(deques, slot):
            continue
        if has_expired(header_of(&deques.slots, slot), load_relaxed(&header_of(&deques.slots, slot).limits)):
            slots[count] = slot
            count += 1
    return count


cdef void expire(const Deques *deques, const Sending *sending) noexcept nogil:
    """Fail what has expired, as `BatchExpirer.abort_expired_batches`."""
    cdef uint64_t in_flight[SLOTS]
    cdef uint64_t queued[SLOTS]
    cdef int index, sent = find_expired(deques, sending.sent, in_flight), count = take_expired(deques, queued)
    for index in range(sent):
        fail(in_flight[index])
        push(in_flight[index], False)
    for index in range(count):
        fail(queued[index])
    for index in range(count):
        push(queued[index], False)
    for index in range(count):
        free_batch(queued[index])


cdef void send_first(const Deques *deques, Sending *sending) noexcept nogil:
    """Take the first batch and send it; the broker can fail to get it."""
    cdef Candidate batch
    cdef Damage damage
    cdef uint64_t taken = 0
    batch.entry, batch.slot, batch.size = 0, load_acquire(&shared.partition.head) - 1, SLOTS * SLOT_SIZE
    if batch.slot == ALL_BITS:
        return
    damage.kind = SOUND
    while drain_stripe(deques, my_ticket(), &batch, 1, &taken, &damage) == LOCK_BUSY:
        wait_for_lock(stripe_line())
    explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
    if not taken:
        return
    sending.sent |= 1ULL << batch.slot
    if sending.left and explore_choose():
        sending.left -= 1
        if explore_choose():
            deliver(batch.slot)  # the answer is lost
        return
    deliver(batch.slot)
    sending.stored |= 1ULL << batch.slot


cdef void take_answer(const Deques *deques, Sending *sending, uint64_t slot) noexcept nogil:
    """Handle an answer, as `ResponseHandler.handle`; what has expired meanwhile is freed now."""
    cdef bint is_stored = sending.stored >> slot & 1
    sending.sent &= ~(1ULL << slot)
    sending.stored &= ~(1ULL << slot)
    if not is_in_flight(deques, slot):
        free_batch(slot)
    elif is_stored:
        complete(slot, False)
    else:
        put_back_first(deques, slot)


cdef void make_pass(Sending *sending) noexcept nogil:
    """Expire, drain, send and poll, as `Sender.run_once`."""
    cdef Appending producer = appending_of()
    cdef uint64_t slot
    cdef bint is_muted = False
    if shared.ghost.now < <uint64_t>(processes - 1) and explore_choose():
        shared.ghost.now += 1
    expire(&producer.deques, sending)
    for slot in range(<uint64_t>SLOTS):
        is_muted = is_muted or sending.sent >> slot & 1 and is_in_flight(&producer.deques, slot)
    if not is_muted:
        send_first(&producer.deques, sending)
    for slot in range(<uint64_t>SLOTS):
        if sending.sent >> slot & 1 and not explore_choose():
            take_answer(&producer.deques, sending, slot)


cdef bint is_finished(const Sending *sending) noexcept nogil:
    return not sending.sent and not load_acquire(&shared.partition.head)


cdef void expiring_sender() noexcept nogil:
    """Make passes until the producers are over, and nothing is left."""
    cdef Sending sending
    cdef int looks, number
    cdef bint is_last
    memset(&sending, 0, sizeof(Sending))
    sending.left = retries
    while True:
        looks, is_last = explore_looks(), True
        explore_note(&shared.ghost.rung, 0)
        for number in range(processes - 1):
            is_last = is_last and (explore_peek(&shared.ghost.over[number]) or explore_is_dead(number))
        make_pass(&sending)
        if not is_finished(&sending):
            continue
        if is_last:
            return
        explore_await(&shared.ghost.rung, 0, looks)


cdef void expiry_body(int me) noexcept nogil:
    if me == processes - 1:
        expiring_sender()
        return
    append_and_flush(me)
    explore_note(&shared.ghost.over[me], 1)
    explore_note(&shared.ghost.rung, 1)


# --- in the end -----------------------------------------------------------------------------------


cdef bint is_orphan(const SlotHeader *header) noexcept nogil:
    cdef int number
    for number in range(processes - 1):
        if explore_peek(contributors_of(header)) >> number & 1 and not explore_is_dead(number):
            return False
    return True


cdef void succeed_and_expire() noexcept nogil:
    """Be the sender after a dead one: `BatchDrainer.recover`, `BatchExpirer.renew_orphans`, and passes."""
    cdef Appending producer = appending_of()
    cdef Pool pool = pool_of()
    cdef Sending sending
    cdef SlotHeader *header
    cdef uint64_t slot, state
    memset(&sending, 0, sizeof(Sending))
    put_right()
    for slot in range(<uint64_t>SLOTS):
        state = explore_peek(&_header(&pool, slot).state) & STATE_MASK
        if state == STATE_COMPLETING:
            complete(slot, True)
        elif state == STATE_IN_FLIGHT:
            put_back_first(&producer.deques, slot)
    for slot in range(<uint64_t>SLOTS):
        header = _header(&pool, slot)
        if explore_peek(&header.state) & STATE_MASK in (STATE_OPEN, STATE_CLOSED) and is_orphan(header):
            store_relaxed(&header.created_ms, 1ULL << ATTEMPTS_SHIFT | shared.ghost.now)
    while not is_finished(&sending):
        make_pass(&sending)
    check_all_is_free()


cdef int times_in(const uint64_t *batches, uint64_t count, uint64_t number) noexcept nogil:
    """Return how often a record is in some batches."""
    cdef uint64_t index, numbers
    cdef int times = 0
    for index in range(count):
        numbers = batches[index]
        while numbers:
            times += numbers & 0xFF == number
            numbers >>= 8
    return times


cdef void check_order() noexcept nogil:
    """Check that the log has each producer's records in order."""
    cdef uint64_t last[MOST]
    cdef uint64_t index, numbers, producer
    memset(last, 0, sizeof(last))
    for index in range(explore_peek(&shared.ghost.logged)):
        numbers = shared.ghost.records[index]
        while numbers:
            producer = ((numbers & 0xFF) - 1) // MOST_TURNS
            explore_assert(numbers & 0xFF > last[producer], b"a record is doubled, or out of order")
            last[producer] = numbers & 0xFF
            numbers >>= 8


cdef void check_outcome(int producer, int turn) noexcept nogil:
    cdef uint64_t number = number_of(producer, turn), said = shared.ghost.said[producer][turn]
    cdef int logged = times_in(shared.ghost.records, explore_peek(&shared.ghost.logged), number)
    cdef int failed = times_in(shared.ghost.failed_records, explore_peek(&shared.ghost.failures), number)
    if explore_is_dead(producer):
        explore_assert(
            logged or failed or turn >= shared.ghost.accepted[producer], b"an accepted record is lost"
        )
        return
    explore_assert(said != 0, b"a producer gets no completion of a record")
    if said == 1:
        explore_assert(logged and not failed, b"an acknowledged record is lost")
    else:
        explore_assert(said == EXPIRED + 1 and failed, b"a producer gets an error where there is none")


cdef const char *expiry_check(bint is_over) noexcept nogil:
    cdef Mine mine
    cdef int turn
    if not is_over:
        return NULL
    succeed_and_expire()
    check_order()
    memset(&mine, 0, sizeof(Mine))
    for mine.me in range(processes - 1):
        if not explore_is_dead(mine.me):
            mine.head = explore_peek(&shared.processes[mine.me].ring_head)
            read_ring(&mine)
        for turn in range(turns):
            check_outcome(mine.me, turn)
    return NULL
