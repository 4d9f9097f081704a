"""The producers' half of the RecordAccumulator: appends a record to the open batch, or as the first of a new one.

A record goes behind the committed bytes of the open batch; one store of the commit word then makes bytes and count
valid. Before that store the record does not exist; after it, the record survives this process::

      header | record | record | record | bytes of no record
      0                                 ^ committed bytes, in `SlotHeader.commit`

The stores of an append, in order, and what a death after each leaves:

=====================  ================================================================================================
contributors           a contributor without a record: it gets a completion that no future waits for
bytes                  bytes behind the committed ones, which the next append overwrites
linger, full, limits   values of a record that does not exist: sent sooner, or kept longer, than needed
max_timestamp          a value in the cell that the commit word does not select
checksums              likewise (``checksum.pxi``), if the slab has them
commit                 the record
counters, histogram    statistics that lack it
=====================  ================================================================================================

A new batch is written into a slot that only its owner knows, then `deque_append` makes it part of the deque. Rows of
columns take the same stores, one commit word for many rows (``columns.pxi``).

A section ends without an append where its caller has to do something first, and then calls again:

* ``NO_ROOM``: there is no open batch with room for the record; one that had none is closed.
* ``NOT_CONTRIBUTOR``: the batch is not expected (`Contributions.expect`).
* ``RING_UNREAD``: this process has completions to read. It may contribute to one more batch only with an empty ring, or
  the ring could overflow (``rings.pxi``).
* ``LEASE_OVER``: the transaction of the record has ended.
* ``GROW``: the open batch has no room for the record, but may get another slot. `append_growing` takes a free one that
  nobody waits for. Without one, the caller waits for memory, and gives what it gets to the batch.

A batch grows while it has to wait, because its partition has batches in flight or queued before it (KIP-782): so the
slower a broker answers, the larger are its batches. A record can then lie in two slots.

All schedules of small scenarios of it are walked in ``tools/explore/batches.pxi``.
"""

cpdef enum:
    APPEND_NO_ROOM = 4
    APPEND_NOT_CONTRIBUTOR = 5
    APPEND_RING_UNREAD = 6
    APPEND_LEASE_OVER = 7
    APPEND_GROW = 9

cdef enum:
    RECORD_SIZES = 1  # which of the histograms of a process

    V2 = 2
    V2_HEADER_SIZE = 61
    LEGACY_BEFORE_BODY = 26
    OVERHEAD_MAX = 26  # most bytes of a record besides its body: of format 1; in format 2 it takes 21
    YOUNG = 4  # the part of its delivery timeout in which a batch grows


cdef uint64_t LIMITS_MASK = (1ULL << LIMITS_SHIFT) - 1
cdef uint64_t TIME_MASK = (1ULL << ATTEMPTS_SHIFT) - 1


cdef struct Appending:
    # A producer: the slab, and its settings.
    Deques deques
    char *histograms
    uint64_t linger_ms
    uint64_t linger
    uint64_t timeout_ms
    uint64_t retries
    uint64_t limits
    uint64_t contributor_words
    uint64_t header_size
    # Bytes from which on its batches are full, and to which they can grow.
    uint64_t batch_size
    uint64_t max_bytes
    bint keeps_checksums


cdef struct Record:
    # A record, and where it went.
    int magic
    int64_t timestamp
    # Its bytes behind those that depend on its place: as they are, or, if NULL, a key, a value (a size of -1 for a
    # null) and the section of its headers, NULL for none.
    const uint8_t *body
    uint64_t body_size
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    int64_t key_size
    int64_t value_size
    uint64_t headers_size
    # As of `FutureRecordMetadata`.
    uint64_t sizes

    uint64_t slot
    uint64_t generation
    uint64_t index
    uint64_t added
    # Whether its batch may get another slot, and how many that has.
    bint may_grow
    uint64_t slots
    # Whether there is a full batch; whether this append made it so, or closed it, or made one due earlier than before,
    # or a new one.
    bint is_full
    bint is_news
    bint is_due_earlier
    bint is_new


cdef struct Written:
    # Encoded records in a batch's chain: the slot where they begin, the place in it, and their bytes.
    uint64_t slot
    uint64_t begin
    uint64_t size


cdef struct Cursor:
    # Where the next byte goes in a chain; whether a link is damaged, so that there is no such place.
    const Slots *slots
    uint64_t slot
    uint64_t offset
    bint is_damaged


cdef struct OpenBatch:
    # A deque's open batch, as it was when it was looked at.
    uint64_t slot
    uint64_t slots
    uint64_t generation
    uint64_t commit
    int64_t base_timestamp


# --- the bytes of a record ------------------------------------------------------------------------


cdef inline uint64_t _zigzag(int64_t number) noexcept nogil:
    return <uint64_t>number << 1 ^ <uint64_t>(number >> 63)


cdef inline uint64_t _varint_size(int64_t number) noexcept nogil:
    """Return the bytes of a number as one of Kafka's varints: seven bits each."""
    return (70 - leading_zeros(_zigzag(number) | 1)) // 7


cdef inline uint8_t *_put_varint(uint8_t *at, int64_t number) noexcept nogil:
    """Write a varint; return the place behind it."""
    cdef uint64_t rest = _zigzag(number)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


cdef inline uint8_t *_put_big_endian(uint8_t *at, uint64_t number, int size) noexcept nogil:
    """Write the low bytes of a number, highest first; return the place behind them."""
    while size:
        size -= 1
        at[0] = <uint8_t>(number >> 8 * size)
        at += 1
    return at


cdef inline uint64_t _field_size(int magic, int64_t size) noexcept nogil:
    """Return the bytes of a key or value with its size before it."""
    return (_varint_size(size) if magic == V2 else 4) + (<uint64_t>size if size > 0 else 0)


cdef inline uint64_t body_size_of(const Record *record) noexcept nogil:
    """Return the bytes of the body of a record of key, value and headers."""
    cdef uint64_t size = _field_size(record.magic, record.key_size) + _field_size(record.magic, record.value_size)
    if record.magic == V2:
        size += record.headers_size if record.headers != NULL else 1
    return size


cdef inline uint8_t *_put_field(uint8_t *at, int magic, const uint8_t *field, int64_t size) noexcept nogil:
    at = _put_varint(at, size) if magic == V2 else _put_big_endian(at, <uint64_t>size, 4)
    if size > 0:
        copy_bytes(at, field, <uint64_t>size)
        at += size
    return at


cdef inline void _put_body(uint8_t *at, const Record *record) noexcept nogil:
    """Write a record's body: key and value, then the headers, which only format 2 has."""
    if record.body != NULL:
        copy_bytes(at, record.body, record.body_size)
        return
    at = _put_field(at, record.magic, record.key, record.key_size)
    at = _put_field(at, record.magic, record.value, record.value_size)
    if record.headers != NULL:
        copy_bytes(at, record.headers, record.headers_size)
    elif record.magic == V2:
        at[0] = 0


cdef inline uint64_t record_size(
    int magic, uint64_t index, int64_t timestamp, int64_t base_timestamp, uint64_t body_size
) noexcept nogil:
    """Return the bytes of a record in its batch."""
    cdef uint64_t size
    if magic != V2:
        return LEGACY_BEFORE_BODY + body_size
    size = 1 + _varint_size(_delta(timestamp, base_timestamp)) + _varint_size(index) + body_size
    return _varint_size(size) + size


cdef inline int64_t _delta(int64_t timestamp, int64_t base_timestamp) noexcept nogil:
    """Return the difference of two timestamps; those of a damaged batch can be anything."""
    return <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)


cdef inline uint8_t *_put_head(
    uint8_t *at, uint64_t index, int64_t base_timestamp, const Record *record
) noexcept nogil:
    """Write what stands before a record's body; return the place behind it.

    length | attributes 0 | timestamp delta | offset delta
    """
    cdef int64_t delta = _delta(record.timestamp, base_timestamp)
    if record.magic != V2:
        return _put_legacy_head(at, index, record)
    at = _put_varint(at, 1 + _varint_size(delta) + _varint_size(index) + record.body_size)
    at[0] = 0
    return _put_varint(_put_varint(at + 1, delta), index)


cdef uint8_t *_put_legacy_head(uint8_t *at, uint64_t index, const Record *record) noexcept nogil:
    """Write what stands before the body of a message of format 1.

    offset 8 | size 4 | crc 4 | magic 1 | attributes 0 | timestamp 8
    """
    cdef uint8_t *crc = _put_big_endian(_put_big_endian(at, index, 8), LEGACY_BEFORE_BODY + record.body_size - 12, 4)
    at = _put_big_endian(_put_big_endian(_put_big_endian(crc + 4, record.magic, 1), 0, 1), record.timestamp, 8)
    _put_big_endian(crc, _crc32_of_body(crc32(0, crc + 4, <uint64_t>(at - crc) - 4), record), 4)
    return at


cdef uint32_t _crc32_of_body(uint32_t crc, const Record *record) noexcept nogil:
    """Continue the checksum of a message of format 1 with its body."""
    if record.body != NULL:
        return crc32(crc, record.body, record.body_size)
    return _crc32_of_field(_crc32_of_field(crc, record.key, record.key_size), record.value, record.value_size)


cdef uint32_t _crc32_of_field(uint32_t crc, const uint8_t *field, int64_t size) noexcept nogil:
    cdef uint8_t length[4]
    _put_big_endian(length, <uint64_t>size, 4)
    crc = crc32(crc, length, 4)
    return crc32(crc, field, <uint64_t>size) if size > 0 else crc


cdef inline uint64_t record_write(
    char *place, uint64_t room, uint64_t index, int64_t base_timestamp, const Record *record
) noexcept nogil:
    """Write a record; return its bytes, 0 without a write if they do not fit."""
    cdef uint64_t size = record_size(record.magic, index, record.timestamp, base_timestamp, record.body_size)
    if size > room:
        return 0
    _put_body(_put_head(<uint8_t *>place, index, base_timestamp, record), record)
    return size


cdef inline void _fault_in(const Slots *slots, uint64_t slot) noexcept nogil:
    """Read a word of a slot that is about to be written, to save page faults.

    For a read of memory that others have used, the kernel maps many pages around it; for a write, only that page. So a
    read before the write saves a fault for each later page, and costs almost nothing once they are mapped.
    """
    load_relaxed(<word *>(slots.bytes + slot * slots.slot_size))


cdef void _put_across(Cursor *cursor, const void *data, uint64_t size) noexcept nogil:
    """Write bytes into the slots of a chain."""
    cdef const Slots *slots = cursor.slots
    cdef const char *at = <const char *>data
    cdef uint64_t here
    cdef int64_t link
    while size:
        if cursor.offset == slots.slot_size:
            link = following(slots, cursor.slot)
            if link < 0:
                cursor.is_damaged = True
                return
            cursor.slot, cursor.offset = <uint64_t>link, 0
            _fault_in(slots, cursor.slot)
        here = min(size, slots.slot_size - cursor.offset)
        copy_bytes(slots.bytes + cursor.slot * slots.slot_size + cursor.offset, at, here)
        cursor.offset += here
        at += here
        size -= here


cdef inline void _put_field_across(Cursor *cursor, int magic, const uint8_t *field, int64_t size) noexcept nogil:
    cdef uint8_t length[10]
    cdef uint8_t *end = _put_varint(length, size) if magic == V2 else _put_big_endian(length, <uint64_t>size, 4)
    _put_across(cursor, length, <uint64_t>(end - length))
    if size > 0:
        _put_across(cursor, field, <uint64_t>size)


cdef uint64_t record_write_across(
    const Slots *slots, uint64_t slot, uint64_t begin, uint64_t index, int64_t base_timestamp, const Record *record
) noexcept nogil:
    """Write a record into a chain that has room for it, from a place in a slot on.

    Returns its bytes, 0 for a damaged chain.
    """
    cdef uint8_t head[31]
    cdef uint8_t *end = _put_head(head, index, base_timestamp, record)
    cdef Cursor cursor
    cursor.slots, cursor.slot, cursor.offset, cursor.is_damaged = slots, slot, begin, False
    _put_across(&cursor, head, <uint64_t>(end - head))
    if record.body != NULL:
        _put_across(&cursor, record.body, record.body_size)
    else:
        _put_field_across(&cursor, record.magic, record.key, record.key_size)
        _put_field_across(&cursor, record.magic, record.value, record.value_size)
        head[0] = 0
        if record.headers != NULL:
            _put_across(&cursor, record.headers, record.headers_size)
        elif record.magic == V2:
            _put_across(&cursor, head, 1)
    if cursor.is_damaged:
        return 0
    return record_size(record.magic, index, record.timestamp, base_timestamp, record.body_size)


# --- statistics -----------------------------------------------------------------------------------


cdef inline void _count(const Appending *producer, uint64_t entry, uint64_t records, uint64_t added) noexcept nogil:
    """Count appended records in the words of this process."""
    cdef ProcessEntry *process = process_of(&producer.deques, entry)
    store_relaxed(&process.records, load_relaxed(&process.records) + records)
    store_relaxed(&process.bytes, load_relaxed(&process.bytes) + added)


cdef inline void _count_record(const Appending *producer, uint64_t entry, uint64_t added) noexcept nogil:
    cdef uint64_t which = SENDER_HISTOGRAMS + BROKERS + entry * PROCESS_HISTOGRAMS + RECORD_SIZES
    _count(producer, entry, 1, added)
    histogram_count(<HistogramEntry *>producer.histograms + which, added, 1)


# --- sections -------------------------------------------------------------------------------------


cdef inline void _leave(
    const Appending *producer, const Queue *queue, const Record *record, const Damage *damage
) noexcept nogil:
    """Release a partition's lock.

    The fence makes a new or full batch visible before the caller looks whether the sender sleeps. Behind a batch that
    was full before there is no need: whoever filled it has looked.
    """
    stripe_exit(&producer.deques, queue, damage)
    if record.is_news:
        fence()


cdef inline bint _may_contribute(const Appending *producer, uint64_t entry) noexcept nogil:
    """Return whether this process has read all of its completions."""
    cdef ProcessEntry *process = process_of(&producer.deques, entry)
    return load_acquire(&process.ring_tail) == load_relaxed(&process.ring_head)


cdef inline void _commit(
    const Appending *producer, SlotHeader *header, const Written *written, uint64_t added, uint64_t timestamp,
    uint64_t largest, Record *record
) noexcept nogil:
    """Make `added` written records part of an open batch; note whether it is full or due earlier, and if that is news.

    `timestamp` and `largest` are the largest timestamp and the bytes of the largest record among them.
    """
    cdef uint64_t linger = load_relaxed(&header.linger), limits = load_relaxed(&header.limits)
    cdef uint64_t timeout_ms = limits & LIMITS_MASK, retries = limits >> LIMITS_SHIFT
    cdef uint64_t commit = load_relaxed(&header.commit), cell = commit & 1
    cdef uint64_t size = commit >> COMMIT_SIZE_SHIFT, full = load_relaxed(&header.full)
    cdef uint64_t before = commit >> 1 & COMMIT_COUNT_MASK, latest = load_relaxed(&header.max_timestamp[cell])
    cdef uint32_t crc
    cdef bint was_full = size >= full
    record.is_due_earlier = linger >> LINGER_SHIFT > producer.linger_ms
    # Before the commit: a death in between must not leave the record lingering too long, nor failing too early.
    if record.is_due_earlier:
        store_relaxed(&header.linger, producer.linger_ms << LINGER_SHIFT | linger & COMPRESSION_MASK)
    if full > producer.batch_size:
        full = producer.batch_size
        store_relaxed(&header.full, full)
    if limits != producer.limits:
        if producer.timeout_ms > timeout_ms:
            timeout_ms = producer.timeout_ms
        if producer.retries > retries:
            retries = producer.retries
        store_relaxed(&header.limits, retries << LIMITS_SHIFT | timeout_ms)
    if largest > load_relaxed(&header.max_record):
        store_relaxed(&header.max_record, largest)
    if timestamp > latest or producer.keeps_checksums:
        cell ^= 1
        store_relaxed(&header.max_timestamp[cell], max(timestamp, latest))
    if producer.keeps_checksums:
        crc = checksum_of(header, commit & 1, before)
        crc = crc32c_of_chain(&producer.deques.slots, written.slot, written.begin, written.size, crc)
        checksum_store(header, load_relaxed(&header.partition), cell, before + added, crc)
    size += written.size
    store_release(&header.commit, size << COMMIT_SIZE_SHIFT | before + added << 1 | cell)
    record.is_full = size >= full
    record.is_news = record.is_due_earlier or record.is_full and not was_full


cdef int64_t _slot_at(const Slots *slots, Contribution *made, const Record *record, uint64_t place) noexcept nogil:
    """Return a slot of a batch's chain by its place in it; -1 for a damaged link.

    Counted links do not change while the batch lives, so the way begins where this process wrote last.
    """
    cdef int64_t link
    if made.written != _batch_of(record) or made.last_place > place:
        made.written, made.last_slot, made.last_place = _batch_of(record), record.slot, 0
    while made.last_place < place:
        link = following(slots, made.last_slot)
        if link < 0:
            return -1
        made.last_slot, made.last_place = <uint64_t>link, made.last_place + 1
    return <int64_t>made.last_slot


cdef bint _find_place(
    const Slots *slots, Contribution *made, const Record *record, uint64_t size, Written *written
) noexcept nogil:
    """Find the place behind the `size` bytes of a batch; return whether its chain has it."""
    cdef uint64_t place = size // slots.slot_size
    cdef int64_t slot
    if place >= record.slots or record.slots > slots.slot_count:
        return False
    slot = _slot_at(slots, made, record, place)
    written.slot, written.begin = <uint64_t>slot, size % slots.slot_size
    return slot >= 0


cdef void _write_into_chain(
    const Appending *producer, Contribution *made, const SlotHeader *header, uint64_t size, const Record *record,
    Written *written
) noexcept nogil:
    """Write a record behind the `size` committed bytes of a batch of several slots, if it has room for it."""
    cdef const Slots *slots = &producer.deques.slots
    cdef uint64_t whole
    cdef int64_t base_timestamp = <int64_t>load_relaxed(&header.base_timestamp)
    if not _find_place(slots, made, record, size, written):
        return
    written.size = record_write(
        slots.bytes + written.slot * slots.slot_size + written.begin,
        slots.slot_size - written.begin,
        record.index,
        base_timestamp,
        record,
    )
    whole = record_size(record.magic, record.index, record.timestamp, base_timestamp, record.body_size)
    if not written.size and size + whole <= record.slots * slots.slot_size:
        written.size = record_write_across(slots, written.slot, written.begin, record.index, base_timestamp, record)


cdef uint64_t _most_slots(const Appending *producer, const Queue *queue) noexcept nogil:
    """Return how many slots a batch of a partition can grow to."""
    cdef uint64_t limit = load_relaxed(&queue.partition.max_bytes)
    return (min(limit, producer.max_bytes) if limit else producer.max_bytes) // producer.deques.slots.slot_size


cdef bint _may_grow(
    const Appending *producer, const Queue *queue, const SlotHeader *header, uint64_t size, const Record *record
) noexcept nogil:
    """Return whether an open batch without room for a record gets another slot rather than a successor.

    A full batch must have to wait. The record must have room in the largest batch, or the slots are for nothing. No
    batch may have got a slot meanwhile: whoever waited for memory brings one. And it must be young: its records have
    the batch's delivery timeout, which began when it was opened.
    """
    cdef uint64_t slot_size = producer.deques.slots.slot_size, room = record.slots * slot_size
    cdef uint64_t age_ms, timeout_ms, needed = size + OVERHEAD_MAX + record.body_size
    if not record.may_grow or record.magic != V2 or record.index >= COMMIT_COUNT_MASK:
        return False
    if (
        room >= min(load_relaxed(&header.full), producer.batch_size)
        and not load_relaxed(&queue.partition.in_flight)
        and load_relaxed(&queue.partition.queued) <= 1
    ):
        return False
    if not room < needed <= min(_most_slots(producer, queue), producer.deques.slots.slot_count) * slot_size:
        return False
    age_ms = monotonic_us() // 1000 - (load_relaxed(&header.created_ms) & TIME_MASK)
    timeout_ms = load_relaxed(&header.limits) & LIMITS_MASK
    return age_ms < timeout_ms // YOUNG


cdef int append_to_open(
    const Appending *producer, const Queue *queue, Contribution *contributions, uint64_t entry, Record *record,
    Damage *damage
) noexcept nogil:
    """Append a record to the open batch, under the partition's lock."""
    cdef uint64_t commit, size, slot = load_relaxed(&queue.partition.open) - 1
    cdef uint64_t slot_size = producer.deques.slots.slot_size
    cdef SlotHeader *header
    cdef Written written
    if slot == ALL_BITS:
        return APPEND_NO_ROOM
    if slot >= producer.deques.slots.slot_count:
        damage.kind, damage.first = WRONG_OPEN, slot
        return SECTION_DAMAGED
    header = header_of(&producer.deques.slots, slot)
    record.slot, record.generation = slot, load_relaxed(&header.generation)
    if not _batch_of(record):  # the id of no batch
        damage.kind, damage.first = WRONG_OPEN, slot
        return SECTION_DAMAGED
    commit = load_relaxed(&header.commit)
    size = commit >> COMMIT_SIZE_SHIFT
    record.index = commit >> 1 & COMMIT_COUNT_MASK
    written.slot, written.begin, written.size = slot, size, 0
    record.slots = load_acquire(&header.slots)
    if size < slot_size and record.index < COMMIT_COUNT_MASK:
        written.size = record_write(
            producer.deques.slots.bytes + slot * slot_size + size,
            slot_size - size,
            record.index,
            <int64_t>load_relaxed(&header.base_timestamp),
            record,
        )
    if not written.size and record.slots > 1 and record.index < COMMIT_COUNT_MASK:
        _write_into_chain(producer, &contributions[slot], header, size, record, &written)
    record.added = written.size
    if not record.added and _may_grow(producer, queue, header, size, record):
        return APPEND_GROW
    if not record.added:
        deque_close_open(&producer.deques.slots, queue, damage)
        record.is_news = True  # full; a sticky record goes to another partition, which does not show that
        return APPEND_NO_ROOM if damage.kind == SOUND else SECTION_DAMAGED
    if not contributions[slot].is_made and not _may_contribute(producer, entry):
        return APPEND_RING_UNREAD
    if not contributions_make(&contributions[slot], header, _batch_of(record), entry):
        return APPEND_NOT_CONTRIBUTOR
    _commit(producer, header, &written, 1, <uint64_t>record.timestamp, record.added, record)
    record.is_full = record.is_full or deque_has_full(queue)
    _count_record(producer, entry, record.added)
    return LOCK_TAKEN


cdef bint look_at_open(const Appending *producer, const Queue *queue, OpenBatch *seen) noexcept nogil:
    """Look at a deque's open batch, without the lock; return whether there is one.

    It can be another one by now, even in the same slot. Who changes it compares the generation. So that comes first:
    if the batch is open then, what follows is its own, or of a later one.
    """
    cdef SlotHeader *header
    seen.slot = load_acquire(&queue.partition.open) - 1
    if seen.slot >= producer.deques.slots.slot_count:
        return False
    header = header_of(&producer.deques.slots, seen.slot)
    seen.generation = load_acquire(&header.generation)
    if load_acquire(&header.state) & STATE_MASK != STATE_OPEN or load_relaxed(&header.partition) != queue.entry:
        return False
    seen.slots = load_acquire(&header.slots)
    seen.commit = load_acquire(&header.commit)
    seen.base_timestamp = <int64_t>load_relaxed(&header.base_timestamp)
    return True


cdef uint64_t _batch_of(const Record *record) noexcept nogil:
    """Return the id of a record's batch."""
    return record.generation << BATCH_SLOT_BITS | record.slot


cdef int append_record(
    const Appending *producer, const Queue *queue, Contribution *contributions, uint64_t entry, uint64_t ticket,
    Record *record, Damage *damage
) noexcept nogil:
    """Append a record to its partition's open batch."""
    cdef int status = stripe_enter(&producer.deques, queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    if _is_leased(queue):
        status = append_to_open(producer, queue, contributions, entry, record, damage)
    else:
        status = APPEND_LEASE_OVER
    _leave(producer, queue, record, damage)
    return status


cdef int append_growing(
    const Appending *producer, Pool *pool, const Queue *queue, Contribution *contributions, uint64_t entry,
    uint64_t ticket, Record *record, Damage *damage
) noexcept nogil:
    """Append a record to its partition's open batch, which gets another slot for it if it may and there is one.

    No lock is held between the sections. A sender that takes the batch in between has the slot with it.
    """
    cdef Handle handle
    cdef Damage found
    cdef bint grew
    cdef int status
    record.may_grow = grew = True
    while True:
        status = append_record(producer, queue, contributions, entry, ticket, record, damage)
        if status != APPEND_GROW or not grew:
            return status
        handle.slot, handle.slots, handle.generation = record.slot, record.slots, record.generation
        found.kind, grew = SOUND, False
        pool_grow(pool, ticket, &handle, &grew, &found)  # damage is found again by who allocates


cdef int append_batch(
    const Appending *producer, const Queue *queue, Contribution *contributions, uint64_t entry, uint64_t ticket,
    uint64_t slot, Record *record, Damage *damage
) noexcept nogil:
    """Append a record as the first of a new batch, which is complete in a slot of this process but for its place.

    If another process has opened a batch meanwhile that has room for it, the record goes there, and `is_new` is false.
    """
    cdef SlotHeader *header
    cdef ProcessEntry *process
    cdef int status = stripe_enter(&producer.deques, queue, ticket, damage)
    if status != LOCK_TAKEN:
        return status
    record.may_grow = False  # the slot is for a new batch
    if not _is_leased(queue):
        status = APPEND_LEASE_OVER
    else:
        status = append_to_open(producer, queue, contributions, entry, record, damage)  # the second look
    if status == APPEND_NO_ROOM:
        header = header_of(&producer.deques.slots, slot)
        record.slot, record.generation, record.index = slot, load_relaxed(&header.generation), 0
        record.added = load_relaxed(&header.commit) >> COMMIT_SIZE_SHIFT
        if not _may_contribute(producer, entry):
            status = APPEND_RING_UNREAD
        elif not contributions_make(&contributions[slot], header, _batch_of(record), entry):
            status = APPEND_NOT_CONTRIBUTOR
        elif not deque_append(&producer.deques.slots, queue, slot, STATE_OPEN, damage):
            status = SECTION_DAMAGED
        else:
            record.is_new = record.is_news = True
            record.is_full = record.added >= load_relaxed(&header.full) or deque_has_full(queue)
            process = process_of(&producer.deques, entry)
            store_relaxed(&process.batches, load_relaxed(&process.batches) + 1)
            _count_record(producer, entry, load_relaxed(&header.max_record))
            status = LOCK_TAKEN
    _leave(producer, queue, record, damage)
    return status


cdef uint64_t begin_first(
    const Appending *producer, uint64_t partition, const Handle *handle, uint64_t now_us, const Record *record
) noexcept nogil:
    """Make a batch of one record in slots of this process; return the record's bytes, 0 if they do not fit.

    The batch has all but its place in a deque. No lock is held, and the order of stores does not matter: the state
    makes them count. A death before that leaves slots that the sender reclaims.
    """
    cdef const Slots *slots = &producer.deques.slots
    cdef SlotHeader *header = header_of(slots, handle.slot)
    cdef word *bits = <word *>(<char *>header + sizeof(SlotHeader))
    cdef uint64_t begin = producer.header_size, added = 0, timestamp = <uint64_t>record.timestamp, index
    cdef uint64_t size = record_size(record.magic, 0, record.timestamp, record.timestamp, record.body_size)
    cdef char *place = slots.bytes + handle.slot * slots.slot_size
    _fault_in(slots, handle.slot)
    if begin + size <= slots.slot_size:
        added = record_write(place + begin, size, 0, record.timestamp, record)
    elif begin + size <= handle.slots * slots.slot_size:
        added = record_write_across(slots, handle.slot, begin, 0, record.timestamp, record)
    if not added:
        return 0
    store_relaxed(&header.commit, begin + added << COMMIT_SIZE_SHIFT | 1 << 1)
    store_relaxed(&header.max_timestamp[0], timestamp)
    store_relaxed(&header.base_timestamp, timestamp)
    store_relaxed(&header.opened_us, now_us)
    store_relaxed(&header.created_ms, now_us // 1000)
    store_relaxed(&header.attempts, now_us // 1000)  # no attempt yet: back-off and linger count from the creation
    store_relaxed(&header.sequence, 0)
    store_relaxed(&header.max_record, added)
    store_relaxed(&header.completed, 0)
    store_relaxed(&header.part, 0)
    store_relaxed(&header.linger, producer.linger)
    store_relaxed(&header.full, producer.batch_size)
    store_relaxed(&header.limits, producer.limits)
    if producer.keeps_checksums:
        checksum_store(header, partition, 0, 1, crc32c_of_chain(slots, handle.slot, begin, added, 0))
    for index in range(producer.contributor_words):
        store_relaxed(&bits[index], 0)
    return added


# --- for Python code ------------------------------------------------------------------------------


cdef class CallGuard:
    """Whether a producer takes calls.

    Attributes:
        closed: whether it has been closed, or is not open yet.
    """

    cdef public bint closed

    def __cinit__(self, *_, **__):
        self.closed = True


@cython.final
@cython.no_gc
cdef class Appender:
    """Appends the records of one producer. Each method is at most one section, and returns at once.

    Args:
        segment: the slab.
        contributions: of this process.
        damaged: makes the error for a damage from its description.
        magic: the format of the records.
        linger_ms: the producer's.
        compression: likewise, as a number.
        delivery_timeout_ms: likewise.
        retries: likewise.
        batch_size: likewise, in bytes.
        max_bytes: bytes that a batch can grow to.
        pool: has the memory for batches.
        unused: gets lists of slots that did not become batches, by an id, to be freed.

    Attributes:
        unused: see above.
        asks_first: whether Python code is to be called before each append: `RecordPath` leaves all records to it then.
    """

    cdef Segment segment
    cdef Contributions contributions
    cdef BufferPool pool
    cdef object damaged
    cdef Appending producer
    cdef int magic
    cdef readonly dict unused
    cdef public bint asks_first

    def __cinit__(
        self,
        Segment segment not None,
        Contributions contributions not None,
        damaged,
        int magic,
        uint64_t linger_ms,
        uint64_t compression,
        uint64_t delivery_timeout_ms,
        uint64_t retries,
        uint64_t batch_size,
        uint64_t max_bytes,
        BufferPool pool not None,
        dict unused not None,
    ):
        cdef const Regions *regions = &segment.geometry.regions
        self.segment, self.contributions, self.damaged = segment, contributions, damaged
        self.pool, self.unused = pool, unused
        self.producer.batch_size, self.producer.max_bytes = batch_size, max_bytes
        self.magic = magic
        self.producer.deques = deques_of(segment)
        self.producer.histograms = segment.memory + regions.histograms
        self.producer.linger_ms = linger_ms
        self.producer.linger = linger_ms << LINGER_SHIFT | compression
        self.producer.timeout_ms, self.producer.retries = delivery_timeout_ms, retries
        self.producer.limits = retries << LIMITS_SHIFT | delivery_timeout_ms
        self.producer.contributor_words = regions.contributor_words
        self.producer.header_size = V2_HEADER_SIZE if magic == V2 else 0
        self.producer.keeps_checksums = segment.geometry.sizes.keeps_checksums and magic == V2

    def append(
        self,
        uint64_t partition,
        uint64_t lane,
        uint64_t lane_generation,
        int64_t timestamp,
        bytes body not None,
        uint64_t sizes,
        callback=None,
    ):
        """Append a record to the open batch of a partition.

        Args:
            partition: its entry.
            lane: entry + 1 of the lane whose transaction the record belongs to; 0 outside of transactions.
            lane_generation: that the lane must have.
            timestamp: milliseconds since the epoch.
            body: from the format's ``encode_body``.
            sizes: as of `FutureRecordMetadata`.
            callback: noted in `Contributions.callbacks`; None for none.

        Returns:
            (status, future, batch is full or due earlier, new batch created, appended bytes).

            The status is `LOCK_TAKEN` if the record was appended. If not, the id of the batch stands in place of the
            future: that of the open batch, or 0.

        Raises:
            SlabDamagedError: the deque is damaged.
        """
        cdef Queue queue
        cdef Record record
        cdef Damage damage
        cdef Segment segment = self._opened()
        future = self._begin(segment, &queue, &record, &damage, partition, lane, lane_generation, timestamp, body)
        record.sizes = sizes
        status = append_growing(
            &self.producer,
            &self.pool.pool,
            &queue,
            self.contributions.table,
            self.contributions.entry,
            ticket_of(segment),
            &record,
            &damage,
        )
        return self._outcome(status, &record, &damage, future, partition, callback)

    def append_batch(
        self,
        uint64_t partition,
        uint64_t lane,
        uint64_t lane_generation,
        int64_t timestamp,
        bytes body not None,
        uint64_t sizes,
        uint64_t slot,
        callback=None,
    ):
        """Append a record as the first of the batch that `begin` made in a slot.

        If another process has opened a batch meanwhile that has room for it, the record goes there.

        Args and errors: as of `append`.

        Returns:
            As `append`. A record that went into another batch has created no new one.
        """
        cdef Queue queue
        cdef Record record
        cdef Damage damage
        cdef Segment segment = self._opened()
        self._check_slot(slot)
        future = self._begin(segment, &queue, &record, &damage, partition, lane, lane_generation, timestamp, body)
        record.sizes = sizes
        status = append_batch(
            &self.producer,
            &queue,
            self.contributions.table,
            self.contributions.entry,
            ticket_of(segment),
            slot,
            &record,
            &damage,
        )
        return self._outcome(status, &record, &damage, future, partition, callback)

    def begin(
        self, uint64_t partition, Buffer buffer not None, uint64_t now_us, int64_t timestamp, bytes body not None
    ):
        """Make a batch of one record in slots that this process has allocated, but for its place in a deque.

        Args:
            partition: entry of the partition that it will belong to.
            buffer: the slots.
            now_us: monotonic microseconds.
            timestamp: milliseconds since the epoch.
            body: from the format's ``encode_body``.

        Raises:
            ValueError: it does not fit.
        """
        cdef Record record
        cdef Handle handle = _handle_of(buffer)
        self._opened()
        self._check_slot(buffer.slot)
        _set_record(&record, self.magic, timestamp, body)
        if not begin_first(&self.producer, partition, &handle, now_us, &record):
            raise ValueError(f"a record of {len(body)} bytes does not fit into {buffer}")

    def batch_size(self, int64_t timestamp, bytes body not None):
        """Return the bytes of a batch with only this record; args as of `begin`."""
        cdef Record record
        _set_record(&record, self.magic, timestamp, body)
        return self.size_of(&record)

    def open_batch(self, uint64_t partition):
        """Return a partition's open batch, as it is without a lock: a hint.

        Returns:
            (the batch as a `Buffer`, its commit word, the timestamp of its first record); None if there is none.
        """
        cdef Queue queue
        cdef OpenBatch seen
        self._opened()
        _set_queue(&queue, &self.producer.deques, partition, 0, 0)
        if not look_at_open(&self.producer, &queue, &seen):
            return None
        return Buffer(seen.slot, seen.slots, seen.generation), seen.commit, seen.base_timestamp

    def has_room(self, uint64_t partition, uint64_t body_size):
        """Return whether the open batch of a partition has room for a record, seen without a lock; not once closed."""
        cdef Queue queue
        cdef OpenBatch seen
        if self.segment is None:
            return False
        _set_queue(&queue, &self.producer.deques, partition, 0, 0)
        if not look_at_open(&self.producer, &queue, &seen) or seen.commit >> 1 & COMMIT_COUNT_MASK >= COMMIT_COUNT_MASK:
            return False
        return bool(
            (seen.commit >> COMMIT_SIZE_SHIFT) + OVERHEAD_MAX + body_size
            <= seen.slots * self.producer.deques.slots.slot_size
        )

    def growing(self, uint64_t partition, uint64_t body_size):
        """Return the open batch of a partition if it would grow for a record, and how many slots it can still get.

        It takes no lock: the batch can have changed since, which `BufferPool.extend` notices.

        Returns:
            (the batch as a `Buffer`, number of slots); (None, 0) if it would not grow.
        """
        cdef Queue queue
        cdef Record record
        cdef OpenBatch seen
        cdef uint64_t most
        self._opened()
        _set_queue(&queue, &self.producer.deques, partition, 0, 0)
        if not look_at_open(&self.producer, &queue, &seen):
            return None, 0
        memset(&record, 0, sizeof(Record))
        record.magic, record.may_grow, record.body_size, record.slots = self.magic, True, body_size, seen.slots
        record.index = seen.commit >> 1 & COMMIT_COUNT_MASK
        header = header_of(&self.producer.deques.slots, seen.slot)
        if not _may_grow(&self.producer, &queue, header, seen.commit >> COMMIT_SIZE_SHIFT, &record):
            return None, 0
        most = _most_slots(&self.producer, &queue)  # perhaps less by now
        return Buffer(seen.slot, seen.slots, seen.generation), most - seen.slots if most > seen.slots else 0

    def close(self):
        """Append no more, and let go of the slab's memory."""
        self.segment = None

    cdef bint takes_calls(self, CallGuard guard) noexcept:
        """Return whether a record can be appended without a question: look again after any Python code.

        A close of the guard's producer makes it False before it waits for what is appended. So a record that is
        appended after a look, with no Python code in between, is among what the close waits for.
        """
        return not (self.asks_first or self.segment is None or (guard is not None and guard.closed))

    cdef ProduceRequestResult begin_batch(
        self, Segment segment, CallGuard guard, Queue *queue, of, Record *record, Damage *damage
    ):
        """Append a record as the first of a new batch, if memory for it is free.

        The caller frees what is in `unused` then, once it has noted the record.

        Args:
            guard: the producer's, if it has to take calls still.
            of: the deque: its ``topic_partition`` and ``lane``.

        Returns:
            The batch's result; None if the record was not appended.
        """
        cdef Appending *producer = &self.producer
        cdef uint64_t slot_size = producer.deques.slots.slot_size
        cdef uint64_t size = self.size_of(record)
        cdef ProduceRequestResult result = None
        cdef Buffer buffer = Buffer()
        cdef Handle handle
        cdef bint is_allocated = False
        pool_allocate(
            &self.pool.pool, ticket_of(segment), (size + slot_size - 1) // slot_size, &handle, &is_allocated, damage
        )
        if not is_allocated:
            self.pool._check(damage)
            return None
        buffer.slot, buffer.slots, buffer.generation = handle.slot, handle.slots, handle.generation
        try:
            self.pool._check(damage)
            if begin_first(producer, queue.entry, &handle, monotonic_us(), record):
                self.contributions._expect(buffer.batch, of.topic_partition, of.lane)
                if self.takes_calls(guard) and append_batch(
                    producer,
                    queue,
                    self.contributions.table,
                    self.contributions.entry,
                    ticket_of(segment),
                    handle.slot,
                    record,
                    damage,
                ) == LOCK_TAKEN:  # no Python code before this: that can forget the batch's result
                    result = self.contributions.by_slot[<Py_ssize_t>record.slot]
        finally:
            if result is None or not record.is_new:
                self.unused[id(buffer)] = [buffer]
        return result

    cdef uint64_t size_of(self, const Record *record) noexcept:
        """Return the bytes of a batch with only this record."""
        return self.producer.header_size + record_size(
            record.magic, 0, record.timestamp, record.timestamp, record.body_size
        )

    cdef Segment _opened(self):
        """Return the segment, which the caller keeps mapped while it uses it.

        Raises:
            ValueError: `close` was called.
        """
        if self.segment is None:
            raise ValueError("the appender is closed")
        return self.segment

    cdef FutureRecordMetadata _begin(
        self,
        Segment segment,
        Queue *queue,
        Record *record,
        Damage *damage,
        uint64_t partition,
        uint64_t lane,
        uint64_t lane_generation,
        int64_t timestamp,
        bytes body,
    ):
        """Prepare a section; return the record's future."""
        damage.kind = SOUND
        _set_queue(queue, &self.producer.deques, partition, lane, lane_generation)
        _set_record(record, self.magic, timestamp, body)
        return FutureRecordMetadata.__new__(FutureRecordMetadata)

    cdef tuple _outcome(
        self,
        int status,
        const Record *record,
        const Damage *damage,
        FutureRecordMetadata future,
        uint64_t partition,
        callback,
    ):
        if status != LOCK_TAKEN:
            return self._outcome_of_rows(status, record, damage, partition)
        self._fill_in(future, record, None)
        if callback is not None:
            self.contributions.callbacks._add(_batch_of(record), callback, future)
        is_full = bool(record.is_full or record.is_due_earlier)
        return status, future, is_full, bool(record.is_new), record.added

    cdef tuple _outcome_of_rows(self, int status, const Record *record, const Damage *damage, uint64_t partition):
        if status != LOCK_TAKEN:
            check_deque(self.damaged, partition, damage)
            batch = _batch_of(record) if status >= APPEND_NO_ROOM else 0
        else:  # before any other Python code, as `_fill_in`
            batch = self.contributions.by_slot[<Py_ssize_t>record.slot]
        is_full = bool(record.is_full or record.is_due_earlier)
        return status, batch, is_full, bool(record.is_new), 0

    cdef void _fill_in(self, FutureRecordMetadata future, const Record *record, ProduceRequestResult result):
        """Fill in the future of an appended record, before any Python code: that can forget the batch's result."""
        if result is None:
            result = <ProduceRequestResult>self.contributions.by_slot[<Py_ssize_t>record.slot]
        future.batch_result = result
        future.index, future.timestamp, future.sizes = <int64_t>record.index, record.timestamp, record.sizes

    cdef _check_slot(self, uint64_t slot):
        if slot >= self.producer.deques.slots.slot_count:
            raise IndexError(f"slot {slot} of {self.producer.deques.slots.slot_count}")


cdef inline int _set_queue(
    Queue *queue, const Deques *deques, uint64_t partition, uint64_t lane, uint64_t lane_generation
) except -1:
    if partition >= deques.max_partitions:
        raise IndexError(f"partition entry {partition} of {deques.max_partitions}")
    if lane > deques.max_lanes:
        raise IndexError(f"lane entry {lane - 1} of {deques.max_lanes}")
    queue[0] = queue_of(deques, partition)
    queue.lane = <LaneEntry *>deques.lanes + (lane - 1) if lane else NULL
    queue.lane_generation = lane_generation
    return 0


cdef void _set_record(Record *record, int magic, int64_t timestamp, bytes body):
    memset(record, 0, sizeof(Record))
    record.magic, record.timestamp = magic, timestamp
    record.body = <const uint8_t *>PyBytes_AS_STRING(body)
    record.body_size = <uint64_t>PyBytes_GET_SIZE(body)


cdef uint64_t monotonic_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1_000_000 + <uint64_t>now.tv_nsec // 1000
