"""Batches: producers append records, the sender takes batches, sends and completes them; what must hold in the end.

The last process is the sender, the others are producers. A record is a number, from its producer and its turn, which
is its timestamp, too. What the broker has, whom a completion has told, and what `send` has accepted is the explorer's
own note. In the end another sender takes over: it repairs what the dead left, and sends and completes the rest.
"""

cdef enum:
    MOST = 3  # processes
    SLOTS = 4
    HEADER_SIZE = 320
    RECORD_SIZE = 8
    SLOT_SIZE = 2 * RECORD_SIZE
    GROWING_SLOT_SIZE = RECORD_SIZE + 2  # the second record lies in two slots
    LARGE_SLOT_SIZE = 4 * RECORD_SIZE  # for as many rows
    MOST_TURNS = 4
    IDS = MOST + 2  # producer ids
    LOG = 8  # batches
    EXPIRED = 7  # an error code
    OBJECT_SIZE = 512  # a `Sequences` at most
    RING = 8  # completions


cdef struct Ghost:
    int accepted[MOST]  # records of each producer
    bint told[MOST][LOG]  # whether it has read a completion, by batch of the log
    word logged
    uint64_t batch[LOG]  # ids
    uint64_t records[LOG]  # a byte for each record
    word rung  # the sender's doorbell
    uint64_t epoch[LOG]  # of lanes, as what follows, and of numbers: under which a batch was sent
    word finished  # batches
    word over[2]  # whether a producer has ended
    word committed[2]  # whether its transaction is
    uint64_t now  # of batches that expire, as what follows: the sender's clock
    uint64_t place[MOST][MOST_TURNS]  # ids + 1 of the batches of accepted records
    uint64_t said[MOST][MOST_TURNS]  # what a completion has said of them, as an error code + 1; 0 before
    word failures
    uint64_t failed[LOG]  # ids
    uint64_t failed_records[LOG]


cdef struct SenderMemory:
    # What a sender knows of sequence numbers: a copy of its `Sequences`, and what that points to.
    char object[OBJECT_SIZE]
    Outstanding outstanding
    uint64_t following[SLOTS]
    uint64_t listed_of[SLOTS]
    uint64_t undecided_behind[SLOTS]
    uint8_t answers[SLOTS]


cdef struct Numbering:
    # What the broker of ``numbering.pxi`` knows of each producer id: whether any, its epoch, which number comes next.
    # The newest one; whether a sender can replace it. How much of the log the broker has forgotten, and whether it can
    # forget; how many requests can fail.
    uint64_t is_known[IDS]
    uint64_t epoch[IDS]
    uint64_t expected[IDS]
    uint64_t newest
    uint64_t can_replace
    uint64_t forgotten
    uint64_t can_forget
    uint64_t left
    uint64_t sequence[LOG]
    # Whether a request can be late, and the one that is: records, 0 for none, and number.
    uint64_t can_delay
    uint64_t late
    uint64_t late_identity
    uint64_t late_sequence
    SenderMemory senders[MOST + 1]


cdef struct Shared:
    LockLine locks[LOCK_STRIPES + 1]
    Ghost ghost
    Superblock superblock
    ProcessEntry processes[MOST + 1]
    PartitionEntry partition
    LaneEntry lane
    word bitmap[1]
    WaiterCell cells[WAITERS]
    CompletionCell rings[MOST * RING]
    char headers[SLOTS * HEADER_SIZE]
    char slots[SLOTS * LARGE_SLOT_SIZE]
    Numbering numbering  # last: only its own scenarios have it in their states


cdef Shared shared
cdef HistogramEntry histograms[SENDER_HISTOGRAMS + BROKERS + MOST * PROCESS_HISTOGRAMS]  # nobody reads them
cdef int processes = 0
cdef int turns = 1
cdef bint has_lane = False
cdef bint commits = False
cdef bint closes = False
cdef bint keeps_checksums = False
cdef bint grows = False
cdef bint expires = False
cdef int expiring = 0
cdef bint splits = False
cdef bint leaves = False
cdef bint is_idle = False
cdef int refused = 0
cdef int rows = 0
cdef int slot_size = SLOT_SIZE
cdef int retries = 0


cdef uint64_t my_ticket() noexcept nogil:
    """Return the ticket of who runs: of the next sender in the end."""
    cdef int number = explore_current()
    return ticket_at(MOST if number < 0 else number)


cdef void wait_for_lock(LockLine *line) noexcept nogil:
    """Wait for a lock as `SlabLock` does when a slice has run out; a living holder lets it go in the end."""
    cdef uint64_t owner = load_acquire(&line.owner)
    cdef int status
    if owner == 0 or owner == UNFINISHED:
        status = lock_try_word(line, my_ticket())
    elif explore_is_dead(<int>(owner & UNFINISHED) - 1):
        status = lock_take_over(line, owner, my_ticket())
    else:
        explore_await(&line.owner, owner, explore_looks())
        return
    if status != LOCK_BUSY:
        lock_release(line, NULL, status == LOCK_UNFINISHED)


cdef Pool pool_of() noexcept nogil:
    cdef Pool pool
    memset(&pool, 0, sizeof(Pool))
    pool.superblock = &shared.superblock
    pool.line = &shared.locks[LOCK_POOL]
    pool.processes = <char *>shared.processes
    pool.bitmap = shared.bitmap
    pool.cells = shared.cells
    pool.slots.headers = shared.headers
    pool.slots.header_size = HEADER_SIZE
    pool.slots.slot_count = SLOTS
    pool.max_processes = MOST
    pool.most_at_once = 1
    pool.seen_ticket = pool.woken_ticket = ALL_BITS
    return pool


cdef Appending appending_of() noexcept nogil:
    cdef Appending producer
    memset(&producer, 0, sizeof(Appending))
    producer.deques.slots.headers = shared.headers
    producer.deques.slots.header_size = HEADER_SIZE
    producer.deques.slots.slot_count = SLOTS
    producer.deques.slots.bytes = shared.slots
    producer.deques.slots.slot_size = producer.batch_size = slot_size
    producer.deques.superblock = &shared.superblock
    producer.deques.partitions = <char *>&shared.partition
    producer.deques.locks = <char *>shared.locks
    producer.deques.processes = <char *>shared.processes
    producer.deques.max_partitions = 1
    producer.histograms = <char *>histograms
    producer.contributor_words = 1
    producer.max_bytes = SLOTS * slot_size
    producer.limits, producer.timeout_ms = YOUNG, YOUNG  # more than the time, which stands still
    producer.keeps_checksums = producer.deques.keeps_checksums = keeps_checksums
    return producer


cdef Rings all_rings() noexcept nogil:
    cdef Rings rings
    rings.cells, rings.processes = shared.rings, <char *>shared.processes
    rings.length, rings.count = RING, MOST
    return rings


cdef LockLine *stripe_line() noexcept nogil:
    return &shared.locks[LOCK_STRIPES]


cdef bint has_lock(int me, int number) noexcept nogil:
    return <int>(explore_peek(&shared.locks[number].owner) & UNFINISHED) - 1 == me


cdef int reach_of(const void *at, int me, bint stores) noexcept nogil:
    """Return the reach of a load or store, as things are."""
    cdef const PartitionEntry *partition = &shared.partition
    cdef const Superblock *superblock = &shared.superblock
    if is_within(at, shared.headers, sizeof(shared.headers)):
        if grows and is_of_chain(at):
            return SHARED if has_lock(me, LOCK_POOL) or not stores else FOREIGN
        if not has_slot(me, <int>((<char *>at - shared.headers) // HEADER_SIZE)):
            return FOREIGN
        return SHARED if stores and is_looked_at(at) else ALONE
    if is_within(at, shared.slots, sizeof(shared.slots)):
        return ALONE if has_slot(me, first_of(<int>((<char *>at - shared.slots) // slot_size))) else FOREIGN
    if has_lane and (at == &partition.next_sequence or at == &partition.acked_sequence or is_of_lanes(at)):
        return reach_of_lane(at, me, stores)
    if is_within(at, partition, sizeof(PartitionEntry)):
        if not has_lock(me, LOCK_STRIPES):
            return FOREIGN
        return SHARED if stores and at == &partition.head else ALONE
    if is_within(at, shared.bitmap, sizeof(shared.bitmap)) or is_within(at, shared.cells, sizeof(shared.cells)):
        return ALONE if has_lock(me, LOCK_POOL) else FOREIGN
    if is_within(at, &shared.processes[me], sizeof(ProcessEntry)):
        if at == &shared.processes[me].ring_tail or stores and at == &shared.processes[me].ring_head:
            return SHARED
        return ALONE
    if is_within(at, shared.processes, sizeof(shared.processes)):
        return ALONE if me == processes - 1 and not stores and is_ring_tail(at) else SHARED
    if at == &superblock.sender_asleep:
        return ALONE if me == processes - 1 and not stores else SHARED
    if at == &superblock.sender_entry or at == &superblock.partition_count or at == &superblock.rebuilds:
        return ALONE  # the first two do not change, the last one is a statistic
    if at == &superblock.topic_count or at == &superblock.lane_count or at == &superblock.generation:
        return ALONE if has_lock(me, LOCK_TABLES) else FOREIGN
    if is_within(at, superblock, sizeof(Superblock)):
        return ALONE if has_lock(me, LOCK_POOL) else FOREIGN
    # Who tries to take a lock meanwhile can only try again. In a store buffer, it comes after what it guards.
    if explore_has_buffers():
        return SHARED
    if at == &shared.locks[LOCK_STRIPES].owner and has_lock(me, LOCK_STRIPES):
        return ALONE
    if at == &shared.locks[LOCK_POOL].owner and has_lock(me, LOCK_POOL):
        return ALONE
    if at == &shared.locks[LOCK_TABLES].owner and has_lock(me, LOCK_TABLES):
        return ALONE
    return SHARED


cdef bint is_looked_at(const void *at) noexcept nogil:
    """Return whether others can load a word of a batch without its lock: who repairs."""
    cdef const SlotHeader *header = <SlotHeader *>shared.headers
    cdef uint64_t offset = <uint64_t>((<char *>at - shared.headers) % HEADER_SIZE)
    if offset == <uint64_t>(<char *>&header.generation - <char *>header):
        return True
    if offset == <uint64_t>(<char *>&header.commit - <char *>header):
        return rows > 0
    if offset == <uint64_t>(<char *>&header.base_timestamp - <char *>header):
        return rows > 0
    if expires and offset == <uint64_t>(<char *>&header.limits - <char *>header):
        return True
    if offset == <uint64_t>(<char *>&header.state - <char *>header):
        return explore_has_deaths() or has_lane or rows > 0
    return offset >= <uint64_t>(<char *>&header.chain - <char *>header) and explore_has_deaths()


cdef bint is_of_lanes(const void *at) noexcept nogil:
    """Return whether a word is the lane's, or says that it was closed."""
    return is_within(at, &shared.lane, sizeof(LaneEntry)) or at == &shared.superblock.lanes_changed


cdef int reach_of_lane(const void *at, int me, bint stores) noexcept nogil:
    """Return the reach of a word that is stored to under the tables' lock, but for numbers, which are the sender's."""
    cdef bint is_read = (
        at == &shared.lane.generation
        or at == &shared.lane.producer_id
        or at == &shared.lane.holder
        or at == &shared.superblock.lanes_changed
        or at == &shared.partition.next_sequence
    )
    if not is_read:
        return ALONE
    return SHARED if stores or not has_lock(me, LOCK_TABLES) else ALONE


cdef bint is_of_chain(const void *at) noexcept nogil:
    """Return whether a word of a batch is the pool's."""
    cdef const SlotHeader *header = <SlotHeader *>shared.headers
    cdef uint64_t offset = <uint64_t>((<char *>at - shared.headers) % HEADER_SIZE)
    return (
        offset == <uint64_t>(<char *>&header.chain - <char *>header)
        or offset == <uint64_t>(<char *>&header.slots - <char *>header)
    )


cdef int first_of(int slot) noexcept nogil:
    """Return the first slot of the batch that has a slot."""
    cdef Pool pool = pool_of()
    cdef SlotHeader *header
    cdef uint64_t left
    cdef int first, member
    for first in range(SLOTS):
        header = _header(&pool, first)
        if explore_peek(&header.state) & STATE_MASK == STATE_FREE:
            continue
        member, left = first, explore_peek(&header.slots)
        while left > 1 and 0 <= member < SLOTS:
            member, left = <int>explore_peek(&_header(&pool, member).chain) - 1, left - 1
            if member == slot:
                return first
    return slot


cdef bint is_ring_tail(const void *at) noexcept nogil:
    cdef int number
    for number in range(processes):
        if at == &shared.processes[number].ring_tail:
            return True
    return False


cdef bint has_slot(int me, int slot) noexcept nogil:
    """Return whether a batch is this process's, by its own state or by the lock of its deque."""
    cdef uint64_t state = explore_peek(&(<SlotHeader *>(shared.headers + slot * HEADER_SIZE)).state)
    if state & STATE_MASK == STATE_FREE:
        return has_lock(me, LOCK_POOL)
    if state & STATE_MASK == STATE_ALLOCATED:
        return <int>(state >> OWNER_SHIFT & OWNER_MASK) == me
    if state & STATE_MASK <= STATE_CLOSED:
        return has_lock(me, LOCK_STRIPES)
    return me == processes - 1


# --- a producer -----------------------------------------------------------------------------------


cdef struct Mine:
    # What a producer knows.
    int me
    uint64_t head  # completions that it has read
    Appending producer
    Queue queue
    Contribution made[SLOTS]


cdef void read_ring(Mine *mine) noexcept nogil:
    """Read all completions, as `Contributions.read`."""
    cdef Rings rings = all_rings()
    cdef ProcessEntry *process = &shared.processes[mine.me]
    cdef Outcome outcome
    while mine.head < load_acquire(&process.ring_tail):
        outcome = ring_at(&rings, mine.me, mine.head)
        if expires:
            note_outcome(mine.me, &outcome)
        else:
            note_told(mine.me, outcome.batch)
        if mine.made[outcome.batch & (1 << BATCH_SLOT_BITS) - 1].batch == outcome.batch:
            mine.made[outcome.batch & (1 << BATCH_SLOT_BITS) - 1].batch = 0
        mine.head += 1
        store_release(&process.ring_head, mine.head)


cdef void note_told(int me, uint64_t batch) noexcept nogil:
    cdef int index
    for index in range(<int>explore_peek(&shared.ghost.logged)):
        if shared.ghost.batch[index] == batch:
            # A sender that takes over does not know what has been read, and tells again; who knows it ignores it.
            explore_assert(
                not shared.ghost.told[me][index] or explore_is_dead(processes - 1), b"a completion comes twice"
            )
            shared.ghost.told[me][index] = True
            return
    explore_assert(False, b"a completion is of a batch that the broker does not have")


cdef void expect(Mine *mine, const Record *record) noexcept nogil:
    """Expect to contribute to a batch, as `Contributions.expect`."""
    mine.made[record.slot].batch, mine.made[record.slot].is_made = _batch_of(record), False


cdef void set_record(Record *record, int me, int turn, uint8_t *number) noexcept nogil:
    memset(record, 0, sizeof(Record))
    number[0] = <uint8_t>number_of(me, turn)
    record.magic, record.timestamp = V2, number[0]
    record.key_size, record.value, record.value_size = -1, number, 1
    record.body_size = body_size_of(record)


cdef int allocate(Handle *handle) noexcept nogil:
    cdef Pool pool = pool_of()
    cdef Damage damage
    cdef bint is_taken = False
    damage.kind = SOUND
    while pool_allocate(&pool, my_ticket(), 1, handle, &is_taken, &damage) == LOCK_BUSY:
        wait_for_lock(pool.line)
    explore_assert(damage.kind == SOUND, b"damage of the pool where there is none")
    return is_taken


cdef void give_back(const Handle *handle) noexcept nogil:
    cdef Pool pool = pool_of()
    cdef Damage damage
    cdef uint64_t freed = 0
    cdef int64_t waiter = -1
    damage.kind = SOUND
    while pool_free(&pool, my_ticket(), handle, 1, &freed, &waiter, &damage) == LOCK_BUSY:
        wait_for_lock(pool.line)
    explore_assert(freed == 1 and damage.kind == SOUND, b"an allocated slot is not freed")


cdef bint extend_open(Mine *mine, const Handle *own) noexcept nogil:
    """Give a slot to the open batch, as `Appender.growing` and `BufferPool.extend`; return whether it has it."""
    cdef Pool pool = pool_of()
    cdef Handle batch
    cdef SlotHeader *header
    cdef Damage damage
    cdef bint extended = False
    cdef uint64_t slot = load_acquire(&shared.partition.open) - 1
    if slot == ALL_BITS:
        return False
    header = _header(&pool, <int64_t>slot)
    batch.slot, batch.slots, batch.generation = slot, load_acquire(&header.slots), load_relaxed(&header.generation)
    damage.kind = SOUND
    while pool_extend(&pool, my_ticket(), &batch, own, &extended, &damage) == LOCK_BUSY:
        wait_for_lock(pool.line)
    explore_assert(damage.kind == SOUND, b"damage of the pool where there is none")
    return extended


cdef void append(Mine *mine, int turn) noexcept nogil:
    """Append a record, as `RecordAppender`: to the open batch, or as the first of a new one."""
    cdef Record record
    cdef Handle handle
    cdef Damage damage
    cdef uint8_t number
    cdef Pool pool = pool_of()
    cdef bint has_slot = False
    cdef int status
    set_record(&record, mine.me, turn, &number)
    damage.kind = SOUND
    while True:
        if not has_slot and (not grows or (mine.me + turn) % 2):
            record.may_grow = grows  # as where others wait for memory: no free slot is taken
            status = append_record(&mine.producer, &mine.queue, mine.made, mine.me, my_ticket(), &record, &damage)
        elif not has_slot:
            status = append_growing(
                &mine.producer, &pool, &mine.queue, mine.made, mine.me, my_ticket(), &record, &damage
            )
        else:
            mine.made[handle.slot].batch = handle.generation << BATCH_SLOT_BITS | handle.slot
            mine.made[handle.slot].is_made = False
            status = append_batch(
                &mine.producer, &mine.queue, mine.made, mine.me, my_ticket(), handle.slot, &record, &damage
            )
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        if status == LOCK_TAKEN:
            break
        elif status == LOCK_BUSY:
            wait_for_lock(stripe_line())
        elif status == APPEND_RING_UNREAD:
            read_ring(mine)
        elif status == APPEND_NOT_CONTRIBUTOR:
            expect(mine, &record)
        else:
            if not allocate(&handle):
                explore_assert(False, b"there is no memory, though there is enough")
                return
            has_slot = not (status == APPEND_GROW and extend_open(mine, &handle))
            if not has_slot:
                continue
            begin_first(&mine.producer, 0, &handle, 0, &record)
    shared.ghost.accepted[mine.me] += 1
    if expires:
        shared.ghost.place[mine.me][turn] = _batch_of(&record) + 1
    if has_slot and not record.is_new:
        give_back(&handle)
    ring_for(&record)


cdef bint has_rows(int me) noexcept nogil:
    """Return whether a producer appends rows."""
    return rows > 0 and me == processes - 2


cdef uint64_t number_of(int me, int turn) noexcept nogil:
    return <uint64_t>(me * MOST_TURNS + turn + 1)


cdef Run run_of(const Mine *mine, uint8_t *numbers, int64_t *timestamps, int64_t *sizes) noexcept nogil:
    """Return all records of a producer as rows, over memory for their numbers, timestamps and sizes."""
    cdef Run run
    cdef Record record
    cdef int turn
    memset(&run, 0, sizeof(Run))
    run.columns.magic, run.columns.key.width, run.columns.headers.width = V2, -1, -1
    run.columns.value.data, run.columns.value.data_size, run.columns.value.fixed_size = numbers, MOST_TURNS, 1
    run.columns.value.count = run.count = MOST_TURNS
    run.timestamps, run.timestamp_step, run.body_sizes = timestamps, 1, sizes
    for turn in range(MOST_TURNS):
        set_record(&record, mine.me, turn, numbers + turn)
        timestamps[turn], sizes[turn] = record.timestamp, record.body_size
    return run


cdef bint grow_open(const Record *record) noexcept nogil:
    """Bring an open batch a free slot, as `Rows._grow`; return whether it has it."""
    cdef Pool pool = pool_of()
    cdef Handle handle
    cdef Damage damage
    cdef bint grew = False
    handle.slot, handle.slots, handle.generation = record.slot, record.slots, record.generation
    damage.kind = SOUND
    while pool_grow(&pool, my_ticket(), &handle, &grew, &damage) == LOCK_BUSY:
        wait_for_lock(pool.line)
    explore_assert(damage.kind == SOUND, b"damage of the pool where there is none")
    return grew


cdef void append_columns(Mine *mine, int begin, int end) noexcept nogil:
    """Append rows, as `Rows.append` and `ColumnAppender`: those that have to wait for a slot as single records."""
    cdef uint8_t numbers[MOST_TURNS]
    cdef int64_t timestamps[MOST_TURNS]
    cdef int64_t sizes[MOST_TURNS]
    cdef Run run = run_of(mine, numbers, timestamps, sizes)
    cdef Record record
    cdef Damage damage
    cdef int status
    run.next, run.stop = begin, end
    memset(&record, 0, sizeof(Record))
    damage.kind = SOUND
    while run.next < run.stop:
        explore_assert(_set_next(&run, &record), b"a row is not there")
        record.may_grow = grows
        status = append_run(&mine.producer, &mine.queue, mine.made, mine.me, my_ticket(), &run, &record, &damage)
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        shared.ghost.accepted[mine.me] += run.appended
        ring_for(&record)
        if status == LOCK_BUSY:
            wait_for_lock(stripe_line())
        elif status == APPEND_RING_UNREAD:
            read_ring(mine)
        elif status == APPEND_NOT_CONTRIBUTOR:
            expect(mine, &record)
        elif status != LOCK_TAKEN and not (status == APPEND_GROW and grow_open(&record)):
            append(mine, <int>run.next)
            run.next += 1


cdef void ring_for(const Record *record) noexcept nogil:
    """Ring for a sender that sleeps, if a batch is new or full."""
    if record.is_news and load_relaxed(&shared.superblock.sender_asleep):
        store_release(&shared.ghost.rung, 1)


cdef void producer_body(int me) noexcept nogil:
    cdef Mine mine
    cdef int turn
    memset(&mine, 0, sizeof(Mine))
    mine.me, mine.producer = me, appending_of()
    mine.queue = queue_of(&mine.producer.deques, 0)
    if not has_rows(me):
        for turn in range(turns):
            append(&mine, turn)
    else:
        append_columns(&mine, 0, 1)
        append_columns(&mine, 1, rows)
    read_ring(&mine)


# --- the sender -----------------------------------------------------------------------------------


cdef bint decode(const char *place, uint64_t size, int64_t base, uint64_t *numbers) noexcept nogil:
    """Read the numbers of a batch's records, one byte each, the first one lowest; return whether they are sound."""
    cdef uint64_t index = 0, at = 0
    numbers[0] = 0
    while at < size:
        if place[at] != 2 * (RECORD_SIZE - 1) or place[at + 1] or <uint64_t>place[at + 3] != 2 * index:
            return False
        if place[at + 4] != 1 or place[at + 5] != 2 or place[at + 7]:  # no key, a value of one byte, no headers
            return False
        if <uint64_t>place[at + 2] != _zigzag(place[at + 6] - base):
            explore_assert(False, b"a record has another's timestamp")
        numbers[0] |= <uint64_t><uint8_t>place[at + 6] << 8 * index
        at += RECORD_SIZE
        index += 1
    return at == size


cdef bint gather(const Pool *pool, const SlotHeader *header, uint64_t slot, uint64_t size, uint8_t *to) noexcept nogil:
    """Copy the bytes of a batch out of its slots; return whether it has as many."""
    cdef uint64_t left = load_acquire(&header.slots), here
    while left and slot < SLOTS and size:
        here = min(size, <uint64_t>slot_size)
        memcpy(to, shared.slots + slot * slot_size, here)
        to, size, left = to + here, size - here, left - 1
        slot = load_relaxed(&_header(pool, <int64_t>slot).chain) - 1
    return size == 0


cdef void deliver(uint64_t slot) noexcept nogil:
    """Send a batch that was taken out. The broker knows by its sequence number whether it has it."""
    cdef Pool pool = pool_of()
    cdef SlotHeader *header = _header(&pool, slot)
    cdef uint64_t commit = load_acquire(&header.commit), size = commit >> COMMIT_SIZE_SHIFT, numbers = 0
    cdef uint64_t batch = load_relaxed(&header.generation) << BATCH_SLOT_BITS | slot, count = 0
    cdef uint8_t bytes[SLOTS * LARGE_SLOT_SIZE]
    cdef int index
    if not gather(&pool, header, slot, size, bytes) or not decode(
        <char *>bytes, size, <int64_t>load_relaxed(&header.base_timestamp), &numbers
    ):
        explore_assert(False, b"a batch that is sent is torn")
        return
    while numbers >> 8 * count:
        count += 1
    explore_assert(count == commit >> 1 & COMMIT_COUNT_MASK, b"a batch counts its records wrongly")
    explore_assert(
        not keeps_checksums or crc32c(0, bytes, size) == checksum_kept(header),
        b"a checksum is of other records",
    )
    for index in range(<int>explore_peek(&shared.ghost.failures)):
        explore_assert(shared.ghost.failed[index] != batch, b"a batch is sent after it has failed")
    for index in range(<int>explore_peek(&shared.ghost.logged)):
        if shared.ghost.batch[index] == batch:
            explore_assert(shared.ghost.records[index] == numbers, b"a batch has changed after it was sent")
            return
    index = <int>explore_peek(&shared.ghost.logged)
    if index == LOG:
        explore_assert(False, b"there are more batches than records")
        return
    shared.ghost.batch[index], shared.ghost.records[index] = batch, numbers
    explore_note(&shared.ghost.logged, <uint64_t>index + 1)


cdef void complete(uint64_t slot, bint again) noexcept nogil:
    """Tell the contributors of a batch, and free it. A new sender does so `again`."""
    cdef Pool pool = pool_of()
    cdef Rings rings = all_rings()
    cdef SlotHeader *header = _header(&pool, slot)
    cdef Handle handle
    if not again:
        conclude_batch(header, 0, 1, 1 << RESULT_SHIFT)
    rings_push(&rings, header, slot, again)
    handle.slot, handle.slots = slot, load_relaxed(&header.slots)
    handle.generation = load_relaxed(&header.generation)
    give_back(&handle)


cdef void put_back_first(const Deques *deques, uint64_t slot) noexcept nogil:
    """Put a batch back that the broker did not get."""
    cdef Queue queue = queue_of(deques, 0)
    cdef Damage damage
    damage.kind = SOUND
    while put_back(deques, &queue, my_ticket(), slot, &damage) == LOCK_BUSY:
        wait_for_lock(stripe_line())
    explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")


cdef uint64_t close_ahead(const Deques *deques, uint64_t slot) noexcept nogil:
    """Close the first batch, as `CompressionAhead`; return its commit word, which stays as it is from now on."""
    cdef Queue queue = queue_of(deques, 0)
    cdef Damage damage
    damage.kind = SOUND
    while close_first(deques, &queue, my_ticket(), slot, &damage) == LOCK_BUSY:
        wait_for_lock(stripe_line())
    explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
    return explore_peek(&header_of(&deques.slots, slot).commit)


cdef void send_all() noexcept nogil:
    """Take, send and complete batches until the deque is empty; `retries` of them come back first."""
    cdef Appending producer = appending_of()
    cdef Candidate batch
    cdef Damage damage
    cdef uint64_t taken, commit = 0, head = load_acquire(&shared.partition.head)
    cdef int left = retries
    while head:
        batch.entry, batch.slot, batch.size = 0, head - 1, SLOTS * LARGE_SLOT_SIZE
        taken, damage.kind = 0, SOUND
        if closes:
            commit = close_ahead(&producer.deques, batch.slot)
        while drain_stripe(&producer.deques, my_ticket(), &batch, 1, &taken, &damage) == LOCK_BUSY:
            wait_for_lock(stripe_line())
        explore_assert(damage.kind == SOUND, b"damage of a deque where there is none")
        explore_assert(
            not (taken and closes) or explore_peek(&header_of(&producer.deques.slots, batch.slot).commit) == commit,
            b"a batch has changed after it was closed",
        )
        if taken and left:
            left -= 1
            put_back_first(&producer.deques, batch.slot)
        elif taken:
            deliver(batch.slot)
            complete(batch.slot, False)
        head = load_acquire(&shared.partition.head)


cdef void sender_body() noexcept nogil:
    """Sleep until there is a batch, as `Doorbell` and the sender's loop do, and send all there are."""
    cdef int looks = explore_looks()
    while not load_acquire(&shared.partition.head):
        store_release(&shared.superblock.sender_asleep, 1)
        fence()
        if load_acquire(&shared.partition.head):
            break
        explore_await(&shared.ghost.rung, 0, looks)
        if explore_looks() != looks:
            break  # a producer is dead, and perhaps none is left to ring
        explore_note(&shared.ghost.rung, 0)
    store_release(&shared.superblock.sender_asleep, 0)
    send_all()


cdef void batches_body(int me) noexcept nogil:
    if me == processes - 1:
        sender_body()
    else:
        producer_body(me)


# --- in the end -----------------------------------------------------------------------------------


cdef void take_over(LockLine *line) noexcept nogil:
    """Free a lock that a dead process has."""
    cdef uint64_t owner = explore_peek(&line.owner)
    if owner and owner != UNFINISHED:
        explore_assert(
            explore_is_dead(<int>(owner & UNFINISHED) - 1), b"a lock is left to a process that has ended"
        )
        if lock_take_over(line, owner, my_ticket()) != LOCK_BUSY:
            lock_release(line, NULL, True)


cdef void check_deque_is_sound() noexcept nogil:
    """Check what the sender relies on without a lock: links from the first to the last one, in order."""
    cdef Pool pool = pool_of()
    cdef uint64_t head = explore_peek(&shared.partition.head), before = 0, count = 0
    if explore_peek(&shared.locks[LOCK_STRIPES].owner) == UNFINISHED:
        return  # the next holder of the lock rebuilds it
    while head and count <= SLOTS:
        explore_assert(explore_peek(&_header(&pool, head - 1).previous) == before, b"a link back is wrong")
        before, count = head, count + 1
        head = explore_peek(&_header(&pool, head - 1).next)
    explore_assert(explore_peek(&shared.partition.tail) == before, b"the last batch is not the last one")
    explore_assert(explore_peek(&shared.partition.queued) == count, b"the number of queued batches is wrong")


cdef bint has_dead() noexcept nogil:
    cdef int number
    for number in range(processes):
        if explore_is_dead(number):
            return True
    return False


cdef void reclaim() noexcept nogil:
    """Free what the dead had allocated."""
    cdef Pool pool = pool_of()
    cdef Look look
    cdef Damage damage
    cdef uint64_t reclaimed = 0
    cdef int number
    damage.kind = SOUND
    memset(&look, 0, sizeof(Look))
    look.absent_s = 1000
    for number in range(processes):
        if explore_is_dead(number):
            look.dead.owners[look.dead.count] = _owner_of(ticket_at(number))
            look.dead.count += 1
    if has_dead() and pool_reclaim(&pool, my_ticket(), &look, &reclaimed, &damage) != LOCK_TAKEN:
        explore_assert(False, b"nothing can be reclaimed")


cdef void put_right() noexcept nogil:
    """Do what a new sender does first: put the locks and the deque right, and reclaim."""
    cdef Appending producer = appending_of()
    cdef Damage damage
    cdef int slot
    take_over(&shared.locks[LOCK_POOL])
    take_over(stripe_line())
    check_deque_is_sound()
    damage.kind = SOUND
    if has_dead() and rebuild_stripe(&producer.deques, 0, my_ticket(), &damage) != LOCK_TAKEN:
        explore_assert(False, b"a deque cannot be rebuilt")
    reclaim()
    for slot in range(SLOTS if has_dead() else 0):  # the bitmap is right now
        explore_assert(
            first_of(slot) == slot or not explore_peek(shared.bitmap) >> slot & 1, b"a slot of a batch is free"
        )


cdef void check_all_is_free() noexcept nogil:
    cdef Pool pool = pool_of()
    cdef int slot
    for slot in range(SLOTS):
        explore_assert(explore_peek(&_header(&pool, slot).state) & STATE_MASK == STATE_FREE, b"a slot is never freed")
    explore_assert(explore_peek(shared.bitmap) == (1 << SLOTS) - 1, b"the bitmap is wrong in the end")


cdef void recover() noexcept nogil:
    """Do what a new sender does: put all right, send again, and complete."""
    cdef Pool pool = pool_of()
    cdef uint64_t state
    cdef int slot
    put_right()
    for slot in range(SLOTS):
        state = explore_peek(&_header(&pool, slot).state) & STATE_MASK
        if state == STATE_IN_FLIGHT:
            deliver(slot)
        if state == STATE_IN_FLIGHT or state == STATE_COMPLETING:
            complete(slot, state == STATE_COMPLETING)
    send_all()
    check_all_is_free()


cdef void check_log() noexcept nogil:
    """Check that each accepted record is in the log, once, in order, and that its producer is told, once."""
    cdef int next_turn[MOST]
    cdef bint has_records[MOST]
    cdef int index, producer, turn, all_records, most
    cdef uint64_t numbers
    memset(next_turn, 0, sizeof(next_turn))
    for index in range(<int>explore_peek(&shared.ghost.logged)):
        memset(has_records, 0, sizeof(has_records))
        numbers = shared.ghost.records[index]
        while numbers:
            producer = <int>((numbers & 0xFF) - 1) // MOST_TURNS
            turn = <int>((numbers & 0xFF) - 1) % MOST_TURNS
            explore_assert(turn == next_turn[producer], b"a record is missing, doubled, or out of order")
            next_turn[producer] += 1
            has_records[producer] = True
            numbers >>= 8
        for producer in range(processes - 1):
            if not explore_is_dead(producer):
                explore_assert(
                    shared.ghost.told[producer][index] == has_records[producer],
                    b"a contributor is not told, or told of another's batch",
                )
    for producer in range(processes - 1):
        all_records = rows if has_rows(producer) else turns
        most = rows if has_rows(producer) else 1  # of one call
        if explore_is_dead(producer):
            explore_assert(
                shared.ghost.accepted[producer] <= next_turn[producer] <= shared.ghost.accepted[producer] + most,
                b"an accepted record is lost",
            )
        else:
            explore_assert(next_turn[producer] == all_records, b"an accepted record is lost")


cdef const char *batches_check(bint is_over) noexcept nogil:
    cdef Mine mine
    if not is_over:
        return NULL
    recover()
    memset(&mine, 0, sizeof(Mine))
    for mine.me in range(processes - 1):
        if explore_is_dead(mine.me):
            continue
        mine.head = explore_peek(&shared.processes[mine.me].ring_head)
        read_ring(&mine)
    check_log()
    return NULL


# --- for Python code ------------------------------------------------------------------------------


def run(
    str name,
    int number,
    int deaths,
    int records=1,
    int retried=0,
    bint ahead=False,
    bint checksums=False,
    bint growth=False,
    int columns=0,
    bint commit=False,
    int expired=0,
    bint forgets=False,
    bint idle=False,
    uint64_t begin=0,
    bint parts=False,
    int refuses=0,
    bint late=False,
    bint leaving=False,
    bint replaced=False,
    bint last_epoch=False,
    bint buffers=False,
):
    """Explore a scenario.

    Args:
        name: "batches"; "expiry" (``expiry.pxi``); "lanes" (``lanes.pxi``), whose options are `commit` and `buffers`;
            or "sequences" (``numbering.pxi``), of senders alone.
        number: of processes, the sender among them.
        deaths: most of them that die.
        records: that each producer appends; all of them in "sequences".
        retried: batches that the broker does not get, or does not answer, at first.
        ahead: whether the sender closes each batch before it takes it, to compress it meanwhile.
        checksums: whether producers keep checksums.
        growth: whether batches grow, because there is always something in flight.
        columns: rows that the last producer appends, in two calls, in place of records.
        commit: whether the lane's first holder commits, and the second one does not begin a transaction.
        expired: bits of the batches that can expire.
        forgets: whether the broker can have an unclean shutdown.
        idle: whether the broker has forgotten the producer after an idle time; then it can also refuse requests.
        begin: the first sequence number; the broker knows the producer if it is not 0.
        parts: whether the broker refuses batches of two records.
        refuses: bits of the records that it refuses.
        late: whether a request can reach the broker after its sender's death, or after it is sent again.
        leaving: whether a sender can leave batches for later, as if the request were full, or they came later.
        replaced: whether the producer id is replaced at some time, as after a PRODUCER_FENCED.
        last_epoch: whether there is no further epoch of the first producer id, so that a bump replaces it.
        buffers: whether stores wait in store buffers.

    Returns:
        As of `found`.
    """
    global has_lane, rows, commits, expires, expiring, splits, leaves, is_idle, refused
    global processes, turns, closes, keeps_checksums, grows, slot_size, retries
    cdef uint64_t size
    processes, turns, closes, keeps_checksums, retries = number, records, ahead, checksums, retried
    grows, slot_size = growth, GROWING_SLOT_SIZE if growth else SLOT_SIZE
    if columns == MOST_TURNS:  # a slot with room for more than one row behind another
        slot_size = SLOT_SIZE if growth else LARGE_SLOT_SIZE
    memset(&shared, 0, sizeof(Shared))
    memset(histograms, 0, sizeof(histograms))
    store_relaxed(&shared.superblock.free_slots, SLOTS)
    store_relaxed(&shared.superblock.partition_count, 1)
    store_relaxed(&shared.partition.in_flight, growth)
    store_relaxed(shared.bitmap, (1 << SLOTS) - 1)
    has_lane, commits, rows, expires = name == "lanes", commit, columns, name == "expiry"
    expiring, splits, leaves, is_idle, refused = expired, parts, leaving, idle, refuses
    shared.numbering.left, shared.numbering.can_forget, shared.numbering.can_delay = retried, forgets, late
    shared.numbering.can_replace = replaced
    if name == "sequences":
        slot_size = SLOT_SIZE if parts else RECORD_SIZE
        return explore_numbering(number, deaths, begin, MAX_EPOCH if last_epoch else 0)
    size = <uint64_t>(<char *>&shared.numbering - <char *>&shared)
    if expires:
        return found(explore(number, deaths, <char *>&shared, size, expiry_body, expiry_check, reach_of, buffers))
    if has_lane:
        set_up_lane()
        return found(explore(number, deaths, <char *>&shared, size, lanes_body, lanes_check, reach_of, buffers))
    return found(explore(number, deaths, <char *>&shared, size, batches_body, batches_check, reach_of, buffers))
