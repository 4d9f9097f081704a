"""A batch, read and written through the header of its first slot.

The header is the truth; `RecordBatch` only names its words. Each property is one load of shared memory. Producers
write a queued batch under its partition's lock. In flight, it is the sender's alone: the words of time, sequence, part
and result. Each store counts at once; where two belong together, the method says which is the last.
"""

cdef enum:
    STATE_COMPLETING = 5

    LAST_SEQUENCE = 0x7FFFFFFF  # sequence numbers wrap around to 0 after it
    EPOCHS = 1 << 15


cdef uint64_t PROGRESS_MASK = (1ULL << PROGRESS_SHIFT) - 1
cdef uint64_t SEQUENCE_MASK = 0xFFFFFFFF
cdef uint64_t MOST_ATTEMPTS = (1ULL << 64 - ATTEMPTS_SHIFT) - 1
cdef uint64_t LAST_TIME = (1ULL << 63) - 1  # in milliseconds, that a Kafka timestamp can hold


cdef inline word *contributors_of(const SlotHeader *header) noexcept nogil:
    """Return the bitmap of a batch's contributors, which follows its header."""
    return <word *>(<char *>header + sizeof(SlotHeader))


cdef inline uint64_t next_contributor(const SlotHeader *header, uint64_t entry, uint64_t count) noexcept nogil:
    """Return the first of `count` processes, from an entry on, that has records in a batch; `count` if none has."""
    cdef uint64_t bits
    while entry < count:
        bits = load_acquire(contributors_of(header) + entry // WORD_BITS) >> entry % WORD_BITS
        if bits:
            entry += <uint64_t>trailing_zeros(bits)
            return min(entry, count)  # a damaged bit must not lead outside of the rings
        entry = (entry // WORD_BITS + 1) * WORD_BITS
    return count


cdef inline uint64_t count_of(const SlotHeader *header) noexcept nogil:
    """Return how many records are committed."""
    return load_acquire(&header.commit) >> 1 & COMMIT_COUNT_MASK


cdef inline uint64_t completed_of(const SlotHeader *header) noexcept nogil:
    return load_relaxed(&header.completed) & PROGRESS_MASK


cdef inline uint64_t next_sequence(uint64_t sequence, uint64_t records) noexcept nogil:
    """Return the number that many records behind another (``DefaultRecordBatch.incrementSequence``)."""
    return sequence + records & LAST_SEQUENCE


cdef uint64_t part_sequence_of(const SlotHeader *header) noexcept nogil:
    """Return the number of the first record that is not complete, of a numbered batch."""
    cdef uint64_t sequence = load_relaxed(&header.sequence) & SEQUENCE_MASK, completed
    if not load_relaxed(&header.part):
        return sequence
    completed = load_relaxed(&header.completed)
    return next_sequence(sequence, (completed & PROGRESS_MASK) - (completed >> PROGRESS_SHIFT))


cdef uint64_t end_sequence_of(const SlotHeader *header) noexcept nogil:
    """Return the number behind those reserved for a numbered batch."""
    return next_sequence(load_relaxed(&header.sequence) & SEQUENCE_MASK, count_of(header))


cdef void number_batch(SlotHeader *header, uint64_t producer_id, uint64_t epoch, uint64_t sequence) noexcept nogil:
    """Assign the identity of a batch; the last store commits it. An old identity is cleared first."""
    cdef uint64_t completed
    store_release(&header.sequence, 0)
    store_release(&header.producer_id, producer_id + 1)
    if load_relaxed(&header.part):
        # Under the new numbers no record is skipped yet, and nothing has been tried.
        completed = completed_of(header)
        store_relaxed(&header.completed, completed)
        store_relaxed(&header.attempts, load_relaxed(&header.attempts) & TIME_MASK)
        sequence = next_sequence(sequence, 0 - completed)
    store_release(&header.sequence, epoch + 1 << EPOCH_SHIFT | sequence)


cdef uint64_t range_of(const SlotHeader *header) noexcept nogil:
    """Return the range word of a completion for what the result words cover."""
    cdef uint64_t part = load_relaxed(&header.part), completed = completed_of(header), end = part >> PROGRESS_SHIFT
    if not part:
        return 0
    return completed << 32 | (0 if end == count_of(header) else end - completed)


cdef void conclude_batch(SlotHeader *header, uint64_t end, uint64_t base_offset, uint64_t result) noexcept nogil:
    """Store the outcome of a batch in flight, or of a part with its end; the last store makes it count."""
    cdef uint64_t part = load_relaxed(&header.part)
    if part:
        store_release(&header.part, end << PROGRESS_SHIFT | part & PROGRESS_MASK)
    store_relaxed(&header.base_offset, base_offset)
    store_relaxed(&header.result, result)
    store_release(&header.state, load_relaxed(&header.state) & ~<uint64_t>STATE_MASK | STATE_COMPLETING)


cdef void complete_part(SlotHeader *header, bint never_stored) noexcept nogil:
    """Mark the part that the result words cover as complete; the rest starts without attempts."""
    cdef uint64_t completed = load_relaxed(&header.completed)
    cdef uint64_t end = load_relaxed(&header.part) >> PROGRESS_SHIFT
    cdef uint64_t skipped = completed >> PROGRESS_SHIFT
    if never_stored:
        skipped += end - (completed & PROGRESS_MASK)
    store_release(&header.completed, skipped << PROGRESS_SHIFT | end)
    store_relaxed(&header.attempts, load_relaxed(&header.attempts) & TIME_MASK)


def undelivered(const uint64_t[::1] words not None, Geometry geometry not None):
    """Count what a slab holds that is not delivered yet. It takes no lock.

    Args:
        words: the slab, which this process can have mapped for reading only.
        geometry: its layout.

    Returns:
        (batches, records).
    """
    cdef const char *headers
    cdef const SlotHeader *header
    cdef uint64_t slot, completed, batches = 0, records = 0
    if <uint64_t>words.shape[0] < geometry.regions.slots // WORD:
        raise ValueError(f"{words.shape[0]} words are no slab of {geometry.slot_count} slots")
    headers = <const char *>&words[0] + geometry.regions.headers
    for slot in range(geometry.sizes.slot_count):
        header = <const SlotHeader *>(headers + slot * geometry.regions.header_size)
        if load_acquire(&header.state) & STATE_MASK >= STATE_OPEN:
            batches += 1
            completed = completed_of(header)  # first: if the batch completes meanwhile, a new one can begin in its slot
            records += max(count_of(header), completed) - completed
    return batches, records


def places_of(Segment segment not None, uint64_t slot, uint64_t size):
    """Return the byte ranges of the first bytes of a chain of slots, adjacent slots as one; None if it is damaged.

    The pool links the slots under its lock, and counts them afterwards. No process changes a counted link until the
    batch is free again, so this needs no lock. A link behind the last counted slot is of a growth that its process did
    not finish: it is ignored.

    Args:
        segment: the slab.
        slot: the first one.
        size: how many bytes.
    """
    cdef Slots slots = slots_of(segment)
    cdef uint64_t first = segment.geometry.regions.slots, begin, end, link, left
    cdef list places = []
    cdef set seen = {slot}
    if slot >= slots.slot_count:
        raise IndexError(f"slot {slot} of {slots.slot_count}")
    left = load_relaxed(&header_of(&slots, slot).slots)
    if left > slots.slot_count or size > left * slots.slot_size:
        return None
    begin = end = first + slot * slots.slot_size
    while True:
        end += min(size, slots.slot_size)
        size -= min(size, slots.slot_size)
        left -= 1
        if not left or not size:
            places.append((begin, end))
            return places
        link = load_relaxed(&header_of(&slots, slot).chain)
        if not 0 < link <= slots.slot_count or link - 1 in seen:
            return None
        if load_relaxed(&header_of(&slots, link - 1).state) & STATE_MASK != STATE_FREE:
            return None
        seen.add(link - 1)
        if link != slot + 2:
            places.append((begin, end))
            begin = end = first + (link - 1) * slots.slot_size
        slot = link - 1


cdef class RecordBatch:
    """The batch in one slot (``ProducerBatch`` in Kafka, ``RecordBatch`` before).

    Args:
        segment: the slab.
        slot: its first slot.

    Attributes:
        slot: likewise.
        partition: entry of the partition that it belongs to, as long as it is a batch.
        at, partition_at: word index of its header, and of that entry.

    Raises:
        IndexError: no such slot, or its header names no such partition.
    """

    cdef Segment segment
    cdef SlotHeader *header
    cdef readonly uint64_t slot
    cdef readonly uint64_t partition
    cdef readonly uint64_t at
    cdef readonly uint64_t partition_at

    def __cinit__(self, Segment segment not None, uint64_t slot):
        cdef const Regions *regions = &segment.geometry.regions
        cdef const Sizes *sizes = &segment.geometry.sizes
        if slot >= sizes.slot_count:
            raise IndexError(f"slot {slot} of {sizes.slot_count}")
        self.segment, self.slot = segment, slot
        self.header = <SlotHeader *>(segment.memory + regions.headers + slot * regions.header_size)
        self.partition = load_relaxed(&self.header.partition)
        if self.partition >= sizes.max_partitions:
            raise IndexError(
                f"slot {slot} holds a batch of partition entry {self.partition}, of {sizes.max_partitions}"
            )
        self.at = (regions.headers + slot * regions.header_size) // WORD
        self.partition_at = (regions.partitions + self.partition * sizeof(PartitionEntry)) // WORD

    @property
    def state(self):
        """State of the slot, a `SlotState`."""
        return load_acquire(&self.header.state) & STATE_MASK

    @state.setter
    def state(self, uint64_t state):
        store_release(&self.header.state, load_relaxed(&self.header.state) & ~<uint64_t>STATE_MASK | state)

    def buffer(self):
        """Return its slots, as the pool knows them."""
        return Buffer(self.slot, load_relaxed(&self.header.slots), load_relaxed(&self.header.generation))

    # --- records ----------------------------------------------------------------------------------

    @property
    def position(self):
        """Its place in the partition queue."""
        return load_relaxed(&self.header.position)

    @property
    def size(self):
        """Committed bytes, including the header's space, before any compression."""
        return committed_size(self.header)

    @property
    def record_count(self):
        """Committed records."""
        return count_of(self.header)

    @property
    def base_timestamp(self):
        """Timestamp of the first record."""
        return load_relaxed(&self.header.base_timestamp)

    @property
    def max_timestamp(self):
        """Largest timestamp of the committed records."""
        return load_relaxed(&self.header.max_timestamp[load_acquire(&self.header.commit) & 1])

    @property
    def linger_ms(self):
        """How long it waits for more records: the least ``linger.ms`` of its contributors."""
        return load_relaxed(&self.header.linger) >> LINGER_SHIFT

    @property
    def wanted(self):
        """The compression that the producer that opened it wants, as a number."""
        return load_relaxed(&self.header.linger) & COMPRESSION_MASK

    def contents(self):
        """Return `record_count`, `base_timestamp` and `max_timestamp`, of one moment."""
        cdef uint64_t commit = load_acquire(&self.header.commit)
        return (
            commit >> 1 & COMMIT_COUNT_MASK,
            load_relaxed(&self.header.base_timestamp),
            load_relaxed(&self.header.max_timestamp[commit & 1]),
        )

    def places(self):
        """Return the places of its `size` bytes: `places_of`."""
        return places_of(self.segment, self.slot, committed_size(self.header))

    def views(self):
        """Return writable views of its `size` bytes, one for each run of slots; None if the chain is damaged."""
        cdef list places = self.places()
        if places is None:
            return None
        memory = self.segment.writable()
        return tuple([memory[begin:end] for begin, end in places])

    def is_intact(self, uint64_t header_size):
        """Return whether the records are those that the producers have appended, in a slab with checksums.

        Args:
            header_size: bytes that the format reserves in front of the records.
        """
        cdef uint64_t begin, end, skipped = header_size
        cdef uint32_t crc = 0
        places = self.places()
        if places is None:
            return False
        for begin, end in places:
            if end - begin < skipped:
                return False
            crc = crc32c(crc, self.segment.memory + begin + skipped, end - begin - skipped)
            skipped = 0
        return crc == checksum_kept(self.header)

    def is_sound(self, uint64_t header_size):
        """Return whether the words are sound that sealing uses.

        Args:
            header_size: bytes that the format reserves in front of the records.
        """
        return self._is_sound(header_size)

    cdef bint _is_sound(self, uint64_t header_size) noexcept:
        cdef const Sizes *sizes = &self.segment.geometry.sizes
        cdef uint64_t commit = load_acquire(&self.header.commit), slots = load_relaxed(&self.header.slots)
        cdef uint64_t count = commit >> 1 & COMMIT_COUNT_MASK, size = commit >> COMMIT_SIZE_SHIFT
        cdef uint64_t number = load_relaxed(&self.header.sequence)
        # A product of a damaged number could wrap around to a room that is large enough.
        cdef uint64_t room = slots * sizes.slot_size if slots <= sizes.slot_count else 0
        return (
            0 < count
            and completed_of(self.header) <= count
            and header_size < size <= room
            and load_relaxed(&self.header.base_timestamp) <= LAST_TIME
            and load_relaxed(&self.header.max_timestamp[commit & 1]) <= LAST_TIME
            and number & SEQUENCE_MASK <= LAST_SEQUENCE
            and number >> EPOCH_SHIFT <= EPOCHS
            and load_relaxed(&self.header.producer_id) <= LAST_TIME
        )

    def write_off(self):
        """Clear the split words of a damaged header, so that the batch can fail as a whole."""
        store_relaxed(&self.header.part, 0)
        store_relaxed(&self.header.completed, 0)

    def contributors(self):
        """Return the process entries of its contributors."""
        cdef uint64_t count = self.segment.geometry.sizes.max_processes
        cdef uint64_t entry = next_contributor(self.header, 0, count)
        cdef list entries = []
        while entry < count:
            entries.append(entry)
            entry = next_contributor(self.header, entry + 1, count)
        return entries

    # --- time -------------------------------------------------------------------------------------

    @property
    def created_ms(self):
        """When it was created, or last renewed (`renew`), in monotonic milliseconds."""
        return load_relaxed(&self.header.created_ms) & TIME_MASK

    @property
    def renewals(self):
        """How often `renew` has restarted its time."""
        return load_relaxed(&self.header.created_ms) >> ATTEMPTS_SHIFT

    def renew(self, uint64_t now_ms):
        """Restart its ``delivery.timeout.ms``."""
        cdef uint64_t renewals = (load_relaxed(&self.header.created_ms) >> ATTEMPTS_SHIFT) + 1
        store_relaxed(&self.header.created_ms, renewals << ATTEMPTS_SHIFT | now_ms)

    def bring_back(self, uint64_t now_ms):
        """Set a creation time that lies in our clock's future to now."""
        store_relaxed(&self.header.created_ms, load_relaxed(&self.header.created_ms) & ~TIME_MASK | now_ms)

    @property
    def limits(self):
        """Retries << 32 | ``delivery.timeout.ms``: the largest of its contributors."""
        return load_relaxed(&self.header.limits)

    @property
    def attempts(self):
        """How often it was sent and came back."""
        return load_relaxed(&self.header.attempts) >> ATTEMPTS_SHIFT

    @property
    def last_attempt_ms(self):
        """When it last came back, or was created, in monotonic milliseconds."""
        return load_relaxed(&self.header.attempts) & TIME_MASK

    @property
    def attempt_incident(self):
        """Number of the incident that ended its last attempt; 0 for none or unknown."""
        cdef uint64_t result = load_relaxed(&self.header.result)
        return result >> 16 if load_relaxed(&self.header.attempts) >> ATTEMPTS_SHIFT and not result & 0xFFFF else 0

    def note_attempt(self, uint64_t now_ms, uint64_t incident=0):
        """Count an attempt that came back because of an incident; the count ends at `MOST_ATTEMPTS`."""
        cdef uint64_t attempts = min((load_relaxed(&self.header.attempts) >> ATTEMPTS_SHIFT) + 1, MOST_ATTEMPTS)
        store_relaxed(&self.header.result, incident << 16)
        store_release(&self.header.attempts, attempts << ATTEMPTS_SHIFT | now_ms)

    # --- sequence ---------------------------------------------------------------------------------

    @property
    def producer_id(self):
        """Producer id assigned to it, -1 for none."""
        return <int64_t>load_relaxed(&self.header.producer_id) - 1

    @property
    def producer_epoch(self):
        """Epoch assigned to it, -1 for none."""
        return <int64_t>(load_relaxed(&self.header.sequence) >> EPOCH_SHIFT) - 1

    @property
    def base_sequence(self):
        """Sequence number of the first record, -1 for none."""
        cdef uint64_t number = load_relaxed(&self.header.sequence)
        return <int64_t>(number & SEQUENCE_MASK) if number else -1

    def identity(self):
        """Return producer id, epoch, and sequence number of the first record that is not complete; -1 for none."""
        cdef uint64_t number = load_relaxed(&self.header.sequence)
        if not number:
            return -1, -1, -1
        return (
            <int64_t>load_relaxed(&self.header.producer_id) - 1,
            <int64_t>(number >> EPOCH_SHIFT) - 1,
            part_sequence_of(self.header),
        )

    # --- parts and result -------------------------------------------------------------------------

    @property
    def is_split(self):
        """Whether it is split: sent in parts because the broker refused the whole."""
        return load_relaxed(&self.header.part) != 0

    @property
    def completed(self):
        """How many records, from the first on, are complete."""
        return completed_of(self.header)

    @property
    def skipped(self):
        """How many of the complete records were never stored and so took no sequence number."""
        return load_relaxed(&self.header.completed) >> PROGRESS_SHIFT

    @property
    def part_end(self):
        """End (exclusive record number) of the part being sent; if that is complete, the next part is not cut yet."""
        return load_relaxed(&self.header.part) & PROGRESS_MASK

    def cut(self, uint64_t end):
        """Send it in parts from now on, even under another sender; the next part ends before record ``end``."""
        store_release(&self.header.part, end)

    @property
    def result_end(self):
        """End (exclusive record number) of the part that the result words cover."""
        return load_relaxed(&self.header.part) >> PROGRESS_SHIFT

    def complete_part(self, bint never_stored):
        """Mark the part that the result words cover as complete; the rest starts without attempts."""
        complete_part(self.header, never_stored)

    @property
    def error_code(self):
        """Why the records that the result words cover were not stored; 0 if they were."""
        return error_code_of(load_relaxed(&self.header.result))
