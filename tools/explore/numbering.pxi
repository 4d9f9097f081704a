"""Sequence numbers and parts: senders send batches to a broker that stores none twice, and none behind a gap.

The batches are queued from the start, and no producer appends. So one process acts at a time: the sender, or the next
one once all before it are dead. What each knows is `Sequences` itself: the object is copied into the explored memory.
What the loop around it does in Python is transcribed: the steps of `Sender.run_once`, `ResponseHandler.handle`,
`SequenceDoubt`, `BatchSplitter`, `BatchDrainer`, `BatchExpirer` and `BatchCompleter`.

The broker fails to get a request, or to answer it, `retried` times, or gets one late; answers come in order. It can
have an unclean shutdown, and then knows only its last batch. It can refuse batches of two records, or some records.
The producer id can be replaced.
Batches can expire at any time. No record may be in the log twice, or before an earlier one; each that has not failed is
there. Each is completed once, as what it is.
"""

cdef extern from "Python.h":
    void Py_SET_REFCNT(object, Py_ssize_t)

ctypedef void (*Body)(int) noexcept nogil
ctypedef const char *(*Check)(bint) noexcept nogil

cdef enum:
    IDENTITY_SHIFT = 16
    LOST = -1  # an answer's error code: the request, or its answer, is lost
    TOO_LARGE = 10
    NOT_ENOUGH_REPLICAS = 19
    MOST_ANSWERS = 30  # with more, batches are sent for ever
    SLOTS_MASK = (1 << BATCH_SLOT_BITS) - 1
    MANY_REFERENCES = 1 << 30  # to objects of which the walk takes back some, and not others


cdef struct Requests:
    # What a sender has sent and has no answer to, in order; the error codes of the answers.
    int count
    uint64_t slots[SLOTS]
    int codes[SLOTS]


cdef void *batch_objects[SLOTS]  # a `RecordBatch` of each slot
cdef void *batch_lists[1 << SLOTS]  # lists of these, by bits
cdef list kept = []


cdef void *memory_of(int sender) noexcept nogil:
    return shared.numbering.senders[sender].object


cdef SlotHeader *header_at(uint64_t slot) noexcept nogil:
    return <SlotHeader *>(shared.headers + slot * HEADER_SIZE)


cdef uint64_t state_at(uint64_t slot) noexcept nogil:
    return explore_peek(&header_at(slot).state) & STATE_MASK


cdef bint is_completing(uint64_t slot) noexcept nogil:
    return load_acquire(&header_at(slot).state) & STATE_MASK == STATE_COMPLETING


cdef bint is_all_free() noexcept nogil:
    cdef uint64_t slot
    for slot in range(<uint64_t>SLOTS):
        if state_at(slot) != STATE_FREE:
            return False
    return True


cdef void add_in_flight(int64_t count) noexcept nogil:
    store_release(&shared.partition.in_flight, load_relaxed(&shared.partition.in_flight) + <uint64_t>count)


cdef uint64_t end_to_send(uint64_t slot) noexcept nogil:
    """Return the record behind those of a batch that are sent: behind its part, or its last one."""
    cdef uint64_t part = load_relaxed(&header_at(slot).part)
    return part & PROGRESS_MASK if part else count_of(header_at(slot))


cdef uint64_t left_to_send(uint64_t slot) noexcept nogil:
    return end_to_send(slot) - completed_of(header_at(slot))


# --- the broker -----------------------------------------------------------------------------------


cdef uint64_t count_in(uint64_t numbers) noexcept nogil:
    cdef uint64_t count = 0
    while numbers >> 8 * count:
        count += 1
    return count


cdef uint64_t identity_of(uint64_t slot) noexcept nogil:
    """Return which producer id, and which epoch of it, a batch is numbered under."""
    cdef uint64_t epoch = (load_relaxed(&header_at(slot).sequence) >> EPOCH_SHIFT) - 1
    return load_relaxed(&header_at(slot).producer_id) - 1 - PRODUCER_ID << IDENTITY_SHIFT | epoch


cdef int store_in_log(uint64_t numbers, uint64_t identity, uint64_t sequence, bint is_late) noexcept nogil:
    """Answer a request as a broker does, by producer id, epoch and sequence number; return an error code."""
    cdef Numbering *broker = &shared.numbering
    cdef uint64_t id = identity >> IDENTITY_SHIFT, epoch = identity & (1 << IDENTITY_SHIFT) - 1, other
    cdef uint64_t index, logged = explore_peek(&shared.ghost.logged), failures = explore_peek(&shared.ghost.failures)
    cdef uint64_t count = count_in(numbers), each = numbers
    for other in range(id + 1, <uint64_t>IDS):
        explore_assert(is_late or not broker.is_known[other], b"a batch is sent under an old producer id")
    if broker.is_known[id] and epoch < broker.epoch[id]:
        explore_assert(is_late, b"a batch is sent under an old epoch")
        return LOST
    if splits and count > 1 or refused >> (numbers - 1) % MOST_TURNS & 1 and count == 1:
        return TOO_LARGE
    for index in range(broker.forgotten, logged):
        if shared.ghost.epoch[index] == identity and broker.sequence[index] == sequence:
            if count_in(shared.ghost.records[index]) == count:
                return 0
    if broker.is_known[id] and sequence != (broker.expected[id] if epoch == broker.epoch[id] else 0):
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    if logged == LOG:
        explore_assert(False, b"there are more batches than records")
        return 0
    while each:
        explore_assert(not times_in(shared.ghost.records, logged, each & 0xFF), b"a record is stored twice")
        explore_assert(
            is_late or not times_in(shared.ghost.failed_records, failures, each & 0xFF),
            b"a record is sent after it has failed",
        )
        each >>= 8
    shared.ghost.records[logged] = numbers
    shared.ghost.epoch[logged], broker.sequence[logged] = identity, sequence
    broker.is_known[id], broker.epoch[id], broker.expected[id] = True, epoch, next_sequence(sequence, count)
    explore_note(&shared.ghost.logged, logged + 1)
    return 0


cdef void arrive() noexcept nogil:
    """Let a request that is late reach the broker, or not yet; there is no one for its answer."""
    cdef Numbering *broker = &shared.numbering
    cdef uint64_t numbers = broker.late
    if numbers and explore_choose():
        broker.late = 0
        store_in_log(numbers, broker.late_identity, broker.late_sequence, True)


cdef int send_batch(uint64_t slot) noexcept nogil:
    """Send a batch, or its part, under its `RecordBatch.identity`; return the error code of the answer."""
    cdef Numbering *broker = &shared.numbering
    cdef uint64_t identity = identity_of(slot), sequence = part_sequence_of(header_at(slot))
    cdef uint64_t numbers = numbers_in(slot, completed_of(header_at(slot)), end_to_send(slot))
    explore_assert(load_relaxed(&header_at(slot).sequence) != 0, b"a batch is sent without a number")
    arrive()
    if broker.can_forget and explore_peek(&shared.ghost.logged) > 1 and explore_choose():
        broker.can_forget, broker.forgotten = False, explore_peek(&shared.ghost.logged) - 1
    if broker.left and explore_choose():
        broker.left -= 1
        if is_idle and explore_choose():
            return NOT_ENOUGH_REPLICAS
        if explore_choose():
            store_in_log(numbers, identity, sequence, False)
        elif broker.can_delay and explore_choose():
            broker.can_delay, broker.late = False, numbers
            broker.late_identity, broker.late_sequence = identity, sequence
        return LOST
    return store_in_log(numbers, identity, sequence, False)


# --- the sender -----------------------------------------------------------------------------------


cdef void put_back_landed(int me, uint64_t slot) noexcept:
    """Put a batch back, as `BatchDrainer.put_back`."""
    cdef Appending producer = appending_of()
    put_back_first(&producer.deques, slot)
    add_in_flight(-1)
    (<Sequences>memory_of(me))._review(0)


cdef void note_attempt(uint64_t slot) noexcept nogil:
    """Count an attempt, as `RecordBatch.note_attempt`."""
    store_relaxed(&header_at(slot).result, 0)
    store_release(&header_at(slot).attempts, load_relaxed(&header_at(slot).attempts) + (1ULL << ATTEMPTS_SHIFT))


cdef void release(int me, uint64_t slot, bint is_stored) noexcept:
    """Free a batch that has failed in flight, as `BatchCompleter.release`."""
    if is_stored:
        (<Sequences>memory_of(me))._stored(<RecordBatch>batch_objects[slot], left_to_send(slot))
    add_in_flight(-1)
    (<Sequences>memory_of(me))._review(0)
    free_batch(slot)


cdef void conclude(int me, uint64_t slot, int code, uint64_t end) noexcept:
    """Store the outcome of a batch, or of its records before one, as `Completer.conclude`."""
    cdef SlotHeader *header = header_at(slot)
    cdef uint64_t completed = completed_of(header), numbers = numbers_in(slot, completed, end)
    if code:
        conclude_batch(header, end, 0, <uint64_t>code)
        note_failure(slot, numbers)
        if code == EXPIRED:
            check_time(numbers)
        return
    (<Sequences>memory_of(me))._stored(<RecordBatch>batch_objects[slot], end - completed)
    conclude_batch(header, end, 1, 1 << RESULT_SHIFT)


cdef bint finish_one(int me, uint64_t slot, bint again) noexcept:
    """Push an outcome, as `BatchCompleter.finish`; return whether the batch is to be freed, not back in its deque."""
    cdef Appending producer = appending_of()
    cdef SlotHeader *header = header_at(slot)
    if not load_relaxed(&header.part):
        push(slot, again)
        return True
    if completed_of(header) < load_relaxed(&header.part) >> PROGRESS_SHIFT:
        push(slot, again)
        complete_part(
            header,
            error_code_of(load_relaxed(&header.result)) == TOO_LARGE
            and not load_relaxed(&header.attempts) >> ATTEMPTS_SHIFT,
        )
    if completed_of(header) < count_of(header):
        put_back_first(&producer.deques, slot)
        return False
    (<Sequences>memory_of(me))._give_back(<RecordBatch>batch_objects[slot])
    if not again:
        (<Sequences>memory_of(me))._finished(<RecordBatch>batch_objects[slot])
    return True


cdef void complete_all(int me, const uint64_t *slots, const int *codes, const uint64_t *ends, int count) noexcept:
    """Complete batches, as `BatchCompleter.complete`."""
    cdef bint is_done[SLOTS]
    cdef int index
    for index in range(count):
        conclude(me, slots[index], codes[index], ends[index])
        add_in_flight(-1)  # `Completer.land`
        if not load_relaxed(&header_at(slots[index]).part):
            (<Sequences>memory_of(me))._finished(<RecordBatch>batch_objects[slots[index]])
    for index in range(count):
        is_done[index] = finish_one(me, slots[index], False)
    for index in range(count):
        if is_done[index]:
            free_batch(slots[index])
    for index in range(count):
        if not is_done[index]:
            (<Sequences>memory_of(me))._review(0)


cdef void expire_numbered(int me) noexcept:
    """Fail what has expired, as `BatchExpirer.abort_expired_batches`."""
    cdef Appending producer = appending_of()
    cdef uint64_t in_flight[SLOTS]
    cdef uint64_t queued[SLOTS]
    cdef uint64_t ends[SLOTS]
    cdef int codes[SLOTS]
    cdef int index, sent = find_expired(&producer.deques, (1 << SLOTS) - 1, in_flight)
    cdef int count = take_expired(&producer.deques, queued)
    if count:
        add_in_flight(count)
    for index in range(sent):
        conclude(me, in_flight[index], EXPIRED, count_of(header_at(in_flight[index])))
        (<Sequences>memory_of(me))._finished(<RecordBatch>batch_objects[in_flight[index]])
        push(in_flight[index], False)
    for index in range(count):
        codes[index], ends[index] = EXPIRED, count_of(header_at(queued[index]))
    complete_all(me, queued, codes, ends, count)


cdef int take_undecided(int me, uint64_t *slots) noexcept:
    cdef Sequences sequences = <Sequences>memory_of(me)
    cdef int count = 0
    while sequences.undecided_count:
        slots[count] = sequences._pop_undecided(0)
        count += 1
    return count


cdef void reenqueue_undecided(int me) noexcept:
    """Put the undecided batches back, as `SequenceDoubt._reenqueue`."""
    cdef uint64_t slots[SLOTS]
    cdef int index, count = take_undecided(me, slots)
    for index in range(count):
        if is_completing(slots[index]):
            release(me, slots[index], False)
        else:
            note_attempt(slots[index])
            put_back_landed(me, slots[index])


cdef bint suspend(int me, uint64_t slot) noexcept:
    """Make a refused batch undecided if that can be decided, as `SequenceDoubt.suspend`."""
    cdef Sequences sequences = <Sequences>memory_of(me)
    if not sequences._can_be_decided(<RecordBatch>batch_objects[slot]):
        sequences._refused(<RecordBatch>batch_objects[slot])
        return False
    sequences._suspend(<RecordBatch>batch_objects[slot])
    return True


cdef void handle(int me, const Requests *requests, int first, int count) noexcept:
    """Handle answers, as `ResponseHandler.handle`."""
    cdef Sequences sequences = <Sequences>memory_of(me)
    cdef uint64_t undecided[SLOTS]
    cdef uint64_t done[SLOTS]
    cdef uint64_t ends[SLOTS]
    cdef int failed[SLOTS]
    cdef int index, other, others, code, total = 0
    cdef uint64_t slot
    cdef bint is_stored, is_missing
    memset(failed, 0, sizeof(failed))
    for index in range(first, count):
        slot, code = requests.slots[index], requests.codes[index]
        if load_relaxed(&header_at(slot).part):
            store_release(&shared.partition.muted, 0)
        is_stored = not code or (
            code == OUT_OF_ORDER_SEQUENCE_NUMBER and sequences._is_stored(<RecordBatch>batch_objects[slot])
        )
        others = take_undecided(me, undecided) if is_stored else 0
        for other in range(others):  # `SequenceDoubt.confirm`
            is_missing = sequences._is_missing(<RecordBatch>batch_objects[undecided[other]])
            if is_completing(undecided[other]):
                release(me, undecided[other], not is_missing)
            elif is_missing:
                note_attempt(undecided[other])
                put_back_landed(me, undecided[other])
            else:
                done[total], ends[total] = undecided[other], count_of(header_at(undecided[other]))
                total += 1
        if is_completing(slot):
            release(me, slot, is_stored)
        elif is_stored:
            done[total], ends[total] = slot, end_to_send(slot)
            total += 1
        elif code == TOO_LARGE and left_to_send(slot) > 1:  # `BatchSplitter.split`
            store_release(&header_at(slot).part, completed_of(header_at(slot)) + 1)
            put_back_landed(me, slot)
        elif code == TOO_LARGE or has_expired(header_at(slot), load_relaxed(&header_at(slot).limits)):
            done[total], ends[total] = slot, end_to_send(slot)
            failed[total] = code if code == TOO_LARGE else EXPIRED
            total += 1
        elif code == OUT_OF_ORDER_SEQUENCE_NUMBER and sequences._is_unknowable(<RecordBatch>batch_objects[slot]):
            explore_assert(shared.numbering.forgotten != 0, b"a batch fails that could be sent again")
            done[total], ends[total], failed[total] = slot, end_to_send(slot), code
            total += 1
        else:
            sequences._came_back(<RecordBatch>batch_objects[slot], code != LOST)
            if code != OUT_OF_ORDER_SEQUENCE_NUMBER or not suspend(me, slot):
                note_attempt(slot)
                put_back_landed(me, slot)
        if not is_stored and sequences.undecided_count and not sequences._is_undecided(0, slot):
            reenqueue_undecided(me)  # `SequenceDoubt.refute`
    complete_all(me, done, failed, ends, total)


cdef void take_answers(int me, Requests *requests, int count) noexcept:
    """Handle the first answers: those that say only "stored" at once, as `Completer.conclude_stored`."""
    cdef uint64_t ends[SLOTS]
    cdef uint64_t slot
    cdef int first = 0, index
    while first < count and not requests.codes[first] and not (<Sequences>memory_of(me)).undecided_count:
        slot = requests.slots[first]
        if load_relaxed(&header_at(slot).part) or load_relaxed(&header_at(slot).state) & STATE_MASK != STATE_IN_FLIGHT:
            break
        ends[first] = count_of(header_at(slot))
        first += 1
    complete_all(me, requests.slots, requests.codes, ends, first)
    handle(me, requests, first, count)
    requests.count -= count
    for index in range(requests.count):
        requests.slots[index], requests.codes[index] = requests.slots[index + count], requests.codes[index + count]


cdef void drain_and_send(int me, Requests *requests) noexcept:
    """Take, number and send batches as long as none must wait, as `ReadyCheck` and `BatchDrainer.drain`."""
    cdef Appending producer = appending_of()
    cdef Sequences sequences = <Sequences>memory_of(me)
    cdef Candidate batch
    cdef Damage damage
    cdef uint64_t taken, completed
    if not load_relaxed(&shared.superblock.producer_id):
        return
    while not load_relaxed(&shared.partition.held) and not load_relaxed(&shared.partition.muted):
        batch.entry, batch.slot, batch.size = 0, load_acquire(&shared.partition.head) - 1, SLOTS * SLOT_SIZE
        if batch.slot == ALL_BITS or leaves and requests.count and explore_choose():
            return
        taken, damage.kind = 0, SOUND
        while drain_stripe(&producer.deques, my_ticket(), &batch, 1, &taken, &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
        explore_assert(taken and damage.kind == SOUND, b"damage of a deque where there is none")
        add_in_flight(1)
        explore_assert(
            not sequences.id_is_spent or sequences._is_numbered(header_at(batch.slot), 0),
            b"a batch is numbered under a producer id that is being replaced",
        )
        sequences._drained(<RecordBatch>batch_objects[batch.slot])
        if load_relaxed(&header_at(batch.slot).part):  # `BatchSplitter.next_part` and `sent`
            completed = completed_of(header_at(batch.slot))
            if end_to_send(batch.slot) <= completed:
                store_release(&header_at(batch.slot).part, completed + 1)
            store_release(&shared.partition.muted, 1)
        requests.slots[requests.count] = batch.slot
        requests.codes[requests.count] = send_batch(batch.slot)
        requests.count += 1


cdef void serve(int me) noexcept:
    """Make passes until no batch is left, as `Sender.run_once`."""
    cdef Requests requests
    cdef Sequences sequences = <Sequences>memory_of(me)
    cdef int answered = 0, idle = 0, count
    memset(&requests, 0, sizeof(Requests))
    while not is_all_free() and idle < 3 and answered < MOST_ANSWERS:
        if expiring and not shared.ghost.now and explore_choose():
            shared.ghost.now = 1
        arrive()
        if not load_relaxed(&shared.superblock.producer_id):
            shared.numbering.newest += 1
            explore_assert(shared.numbering.newest < <uint64_t>IDS, b"the producer id is replaced for ever")
            sequences._use_producer_id(PRODUCER_ID + shared.numbering.newest, 0)
        expire_numbered(me)
        if sequences.undecided_count and not sequences._first_to_try(sequences._of(0)):
            reenqueue_undecided(me)
        drain_and_send(me, &requests)
        idle = 0 if requests.count else idle + 1
        count = 0
        while count < requests.count and not explore_choose():
            count += 1
        if count:
            answered += count
            take_answers(me, &requests, count)
        if shared.numbering.can_replace and explore_choose():
            shared.numbering.can_replace = False
            sequences._replace_producer_id()
    arrive()
    explore_assert(idle < 3, b"a batch is never sent")
    explore_assert(answered < MOST_ANSWERS, b"batches are sent for ever")


cdef void succeed_numbered(int me) noexcept:
    """Recover from the death of a sender, as `BatchDrainer.recover`."""
    cdef Appending producer = appending_of()
    cdef Pool pool = pool_of()
    cdef Damage damage
    cdef uint64_t slot
    cdef int left = 0, done = 0
    damage.kind = SOUND
    while pool_repair(&pool, my_ticket()) == LOCK_BUSY:
        wait_for_lock(pool.line)
    while rebuild_stripe(&producer.deques, 0, my_ticket(), &damage) == LOCK_BUSY:
        wait_for_lock(stripe_line())
    explore_assert(damage.kind == SOUND, b"a deque cannot be rebuilt")
    store_release(&shared.partition.muted, 0)
    store_release(&shared.partition.in_flight, 0)
    for slot in range(<uint64_t>SLOTS):
        if state_at(slot) == STATE_COMPLETING and finish_one(me, slot, True):
            done |= 1 << slot
        elif state_at(slot) >= STATE_OPEN:
            left |= 1 << slot
    for slot in range(<uint64_t>SLOTS):
        if done >> slot & 1:
            free_batch(slot)
    for slot in range(<uint64_t>SLOTS):
        if state_at(slot) == STATE_IN_FLIGHT:
            if load_relaxed(&header_at(slot).part):
                note_attempt(slot)  # the broker may have stored the part
            put_back_first(&producer.deques, slot)
    (<Sequences>memory_of(me))._recover(<list>batch_lists[left], 1)


cdef void numbering_body(int me) noexcept:
    cdef int before = 0
    while before < me:
        if explore_peek(&shared.ghost.rung):
            return  # nothing is left
        if explore_is_dead(before):
            before += 1
        else:
            explore_await(&shared.ghost.rung, 0, explore_looks())
    if me:
        succeed_numbered(me)
    serve(me)
    explore_note(&shared.ghost.rung, 1)


cdef int numbering_reach(const void *at, int me, bint stores) noexcept nogil:
    return ALONE


# --- in the end -----------------------------------------------------------------------------------


cdef int owner_of(int turn) noexcept nogil:
    """Return the producer of a record: 0, whose batches can expire, or 1."""
    return 0 if expiring >> turn * RECORD_SIZE // slot_size & 1 else 1


cdef void check_completion(int turn) noexcept nogil:
    """Check that a record is in the log as the one completion of it says."""
    cdef Rings rings = all_rings()
    cdef Outcome outcome
    cdef int owner = owner_of(turn), completions = 0
    cdef uint64_t number = number_of(owner, turn), slot = turn * RECORD_SIZE // slot_size, at, first
    cdef uint64_t index = turn - slot * slot_size // RECORD_SIZE
    cdef bint logged = times_in(shared.ghost.records, explore_peek(&shared.ghost.logged), number)
    cdef bint failed = times_in(shared.ghost.failed_records, explore_peek(&shared.ghost.failures), number)
    for at in range(explore_peek(&shared.processes[owner].ring_tail)):
        outcome = ring_at(&rings, owner, at)
        first = outcome.range >> RANGE_SHIFT
        if outcome.batch & SLOTS_MASK == slot and first <= index:
            if not outcome.range & RANGE_MASK or index < first + (outcome.range & RANGE_MASK):
                completions += 1
                explore_assert(
                    failed == (outcome.result & ERROR_CODE_MASK != 0), b"a completion says what is not so"
                )
    explore_assert(completions == 1, b"a record is not completed once")
    explore_assert(logged or failed, b"an acknowledged record is lost")


cdef const char *numbering_check(bint is_over) noexcept:
    cdef uint64_t index, numbers, turn, last = 0
    cdef int each
    if not is_over:
        return NULL
    take_over(&shared.locks[LOCK_POOL])
    take_over(stripe_line())
    if not explore_peek(&shared.ghost.rung):
        succeed_numbered(MOST)
        serve(MOST)
    check_all_is_free()
    for index in range(explore_peek(&shared.ghost.logged)):
        numbers = shared.ghost.records[index]
        while numbers:
            turn = ((numbers & 0xFF) - 1) % MOST_TURNS + 1
            explore_assert(turn > last, b"a record is out of order")
            last, numbers = turn, numbers >> 8
    for each in range(turns):
        check_completion(each)
    return NULL


# --- for Python code ------------------------------------------------------------------------------


cdef void queue_records() noexcept nogil:
    """Append the records, as many to a batch as a slot has room for."""
    cdef Mine mine
    cdef int turn
    for turn in range(turns):
        memset(&mine, 0, sizeof(Mine))
        mine.me, mine.producer = owner_of(turn), appending_of()
        mine.producer.limits = mine.producer.timeout_ms = <uint64_t>mine.me + 1
        mine.queue = queue_of(&mine.producer.deques, 0)
        append(&mine, turn)


cdef make_objects():
    """Make a `RecordBatch` for each slot, and lists of these for each set of slots; return their segment."""
    import os

    cdef RecordBatch batch
    geometry = Geometry(8, SLOTS, MOST + 1, 1, 1, 1)
    descriptor = memory_file(b"explored")
    os.ftruncate(descriptor, geometry.total_size)
    segment = Segment(descriptor, geometry)
    os.close(descriptor)
    batches = []
    for slot in range(SLOTS):
        batch = RecordBatch(segment, slot)
        batch.header = header_at(slot)
        batches.append(batch)
        Py_SET_REFCNT(batch, MANY_REFERENCES)
        batch_objects[<int>slot] = <void *>batch
    for bits in range(1 << SLOTS):
        some = [batches[slot] for slot in range(SLOTS) if bits >> slot & 1]
        kept.append(some)
        Py_SET_REFCNT(some, MANY_REFERENCES)
        batch_lists[<int>bits] = <void *>some
    kept.append(segment)
    return segment


cdef set_up_numbering(uint64_t begin, uint64_t epoch):
    """Queue the records, and give each sender its `Sequences`, with the first number and its epoch."""
    cdef Sequences sequences, copy
    cdef SenderMemory *memory
    cdef int sender
    queue_records()
    sequences = Sequences(make_objects(), True)
    sequences.deques = appending_of().deques
    sequences.use_producer_id(PRODUCER_ID, epoch)
    store_relaxed(&shared.partition.next_sequence, epoch << EPOCH_SHIFT | begin)
    store_relaxed(&shared.partition.acked_sequence, epoch << EPOCH_SHIFT | begin)
    shared.numbering.is_known[0] = begin > 0 and not is_idle
    shared.numbering.epoch[0], shared.numbering.expected[0] = epoch, begin
    if is_idle:
        sequences._renew_idle(1, 0)
        sequences._renew_idle(1, IDLE_S)
    kept.append(sequences)
    if type(sequences).__basicsize__ > OBJECT_SIZE:
        raise MemoryError("a Sequences is larger than the explorer's place for one")
    for sender in range(MOST + 1):
        memory = &shared.numbering.senders[sender]
        memcpy(memory.object, <void *>sequences, type(sequences).__basicsize__)
        copy = <Sequences><void *>memory.object
        Py_SET_REFCNT(copy, MANY_REFERENCES)
        copy.partitions = &memory.outstanding
        copy.following = memory.following
        copy.listed_of = memory.listed_of
        copy.undecided_behind = memory.undecided_behind
        copy.answers = memory.answers


cdef tuple explore_numbering(int number, int deaths, uint64_t begin, uint64_t epoch):
    set_up_numbering(begin, epoch)
    return found(
        explore(
            number,
            deaths,
            <char *>&shared,
            sizeof(Shared),
            <Body><void *>numbering_body,
            <Check><void *>numbering_check,
            numbering_reach,
            False,
        )
    )
