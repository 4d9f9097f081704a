"""The slab's memory layout: the only description of it.

One segment holds these regions, in this order. Each starts on a cache line, the slots on a page::

    +----------------------+ 0
    | superblock           | creator, digest of the settings, sizes; the sender's words; counters
    +----------------------+
    | settings             | two copies: what users agree on, and what they share, as JSON; never a password
    +----------------------+
    | locks                | one cache line each: the owner (the pool's semaphore is a named one, outside)
    +----------------------+
    | process table        | one entry a process: identity, wake-up words, ends of its completion ring
    +----------------------+
    | topic table          | name, metadata state, number of partitions
    +----------------------+
    | partition table      | lane, topic and number, leader, deque of batches, sequence, counters
    +----------------------+
    | lanes                | transactions: holder, transactional id, producer id and epoch
    +----------------------+
    | incidents            | a ring of errors between the sender and the brokers; the place of the sender's log
    +----------------------+
    | broker table         | how each broker does, as the sender sees it
    +----------------------+
    | histograms           | times and sizes: the sender's, one a broker, and those of each process
    +----------------------+
    | waiter queue         | a ring of tickets: the waiters for memory, in order of arrival
    +----------------------+
    | completion rings     | one a process: results of the batches that it contributed to
    +----------------------+
    | free-list bitmap     | one bit a slot, set where free
    +----------------------+
    | slot headers         | the truth about every slot
    +----------------------+ page
    | slots                | slot_size bytes each: the records
    +----------------------+ total size

All but the settings and the slots consists of aligned 8-byte words, used as unsigned integers. So each
store is atomic, and a process can be killed between any two of them.

The slot headers are the truth. A word marked *index* below follows from them: it is valid only under its lock, and is
rebuilt from them after a death.
"""

cdef extern from "atomics.h" nogil:
    ctypedef struct word:
        pass  # so a word is only reached by the functions below
    uint64_t load_relaxed(const word *at)
    uint64_t load_acquire(const word *at)
    void store_relaxed(word *at, uint64_t value)
    void store_release(word *at, uint64_t value)
    bint compare_and_swap(word *at, uint64_t expected, uint64_t desired)
    void relax()
    void fence()
    void copy_bytes(void *to, const void *begin, uint64_t size)
    void step()

cpdef enum:
    CACHE_LINE = 64
    PAGE = 4096
    WORD = 8

    MAX_SLOTS = (1 << 24) - 1
    MAX_PROCESSES = 1024
    MAX_TOPICS = (1 << 20) - 2
    MAX_LANES = 2000

    STRIPES = 16
    # Guards the bitmap, the waiters, and every step of a slot from or to FREE.
    LOCK_POOL = 0
    # Guards the topic table, the partition table and the lanes.
    LOCK_TABLES = 1
    # First of the stripes: lock LOCK_STRIPES + p % STRIPES guards the deque of partition entry p.
    LOCK_STRIPES = 2
    LOCK_COUNT = LOCK_STRIPES + STRIPES
    TOKEN_WORDS = 2
    SETTINGS_SIZE = 16384
    INCIDENTS = 32
    BROKERS = 64
    SENDER_HISTOGRAMS = 5
    PROCESS_HISTOGRAMS = 2
    HISTOGRAM_BUCKETS = 246
    WAITERS = 1024
    PARTS_IN_FLIGHT = 64


cpdef enum:
    # Where a field begins that shares its word with others, and masks of fields; the structs say which is where.

    # Of an owner word, of a state word, of a commit word.
    TICKET_SHIFT = 16
    UNFINISHED = 0xFFFF
    STATE_MASK = 0xFF
    OWNER_SHIFT = 8
    OWNER_MASK = 0xFFFF
    INCARNATION_SHIFT = 48
    COMMIT_SIZE_SHIFT = 25
    COMMIT_COUNT_MASK = (1 << 24) - 1

    # Of other words of a slot header.
    PROGRESS_SHIFT = 24
    ATTEMPTS_SHIFT = 48
    LINGER_SHIFT = 8
    LIMITS_SHIFT = 32
    COMPRESSION_MASK = 0xFF

    # Of the number of a batch, of a partition's key, of a lane, of a process's sleep.
    BATCH_SLOT_BITS = 24
    KEY_TOPIC_SHIFT = 32
    KEY_LANE_SHIFT = 52
    LEASE_SHIFT = 40
    LANE_ERROR = 1 << 16
    HOLDER_SHIFT = 16
    SLEEP_BITS = 16

    # Of a histogram: values below the first have a bucket each, a larger power of two so many.
    HISTOGRAM_EXACT = 16
    HISTOGRAM_PARTS = 8


cdef struct Superblock:
    # Each group of words has its writers. A counter that two processes can write at once, under different locks, is a
    # statistic: it can miss one.

    # Written by the creator, before `ready`.

    # ``SHMACCUM``.
    word magic
    # `ABI_VERSION`.
    word abi
    # 1 once the creator has finished; anything else is what a creator left that died before.
    word ready
    # Bytes in the segment.
    word total_size
    # User id of the creator.
    word owner_uid
    # Digest of the settings that all users of the slab must agree on; lower 32 bits: of the secret ones.
    word digest
    # Bytes in a slot: shmaccum.slot.size.
    word slot_size
    # Slots: buffer.memory / slot_size.
    word slot_count
    # Entries in the process table.
    word max_processes
    # Entries in the topic table.
    word max_topics
    # Entries in the partition table.
    word max_partitions
    # Wall-clock milliseconds of the creation.
    word created_ms
    word unused_12
    # Random, stored by the creator: the names of the semaphores and of the doorbell
    # derive from them, so that no other user can guess a name.
    word token[TOKEN_WORDS]
    # 1 if slot headers have `checksums`: shmaccum.checksum=append; else 0.
    word keeps_checksums

    # Written by the sender, without a lock.

    # Process entry of the newest sender + 1; whether it still has the role, the lock file shows.
    word sender_entry
    # Monotonic ns when the sender began to listen to its doorbell, 0 while it does not; change first, then press the
    # doorbell.
    word sender_asleep
    # Senders that have served this slab.
    word sender_starts
    # Kafka producer id + 1, 0 while there is none; stored after the words that depend on it.
    word producer_id
    # Epoch that the broker gave with it; a partition's own epoch can be higher.
    word producer_epoch
    # Raised by every producer that requests a topic's metadata, under the tables' lock.
    word metadata_requests
    # Monotonic ms by which a sleeping sender wakes without a doorbell; 0 while unknown.
    word sender_wakes
    word unused_23

    # Written under the tables' lock.

    # Topic entries in use: always the first ones.
    word topic_count
    # Partition entries in use: always the first ones.
    word partition_count
    # Raised after every change of the topic or partition table: copies of them are then stale.
    word generation
    # Entries in the lane table; written by the creator.
    word max_lanes
    # Lane entries in use: always the first ones.
    word lane_count
    # Raised whenever a lane stops accepting records: the sender then drops what is queued there.
    word lanes_changed
    # Refused calls of `send` whose topic has no entry: its name is not allowed, or the table is full. Producers write
    # it under the tables' lock.
    word refusals
    word unused_31

    # Written under the pool's lock.

    # Index: slots free now.
    word free_slots
    # Most slots ever in use at once.
    word peak_slots
    # Slots below this number have been in use at some time, the others never.
    word touched_slots
    # Ticket of the first waiter.
    word waiter_head
    # Ticket that the next waiter will draw.
    word waiter_tail
    # Slots freed after their owner died before it used them.
    word reclaimed_slots
    # Number of free slots at which the first waiter is woken.
    word enough_slots
    # The process whose turn it is, and how many slots it may still take before the waiters (`pool.pxi`).
    word turn

    # Counters and times of the sender, which alone writes them, without a lock, where nothing else is said.

    # Batches acknowledged.
    word batches_sent
    # Records in them.
    word records_sent
    # Bytes in them, as sent.
    word bytes_sent
    # Batches failed with an error.
    word batches_failed
    # Records in them.
    word records_failed
    # Times that a batch went back to the front of its deque.
    word batches_retried
    # Produce requests.
    word requests_sent
    # Uncompressed bytes in the acknowledged batches: the filled part of their slots.
    word fill_bytes
    # Bytes in the slots of the acknowledged batches.
    word capacity_bytes
    # Times that indexes were rebuilt from the slot headers after a death: a statistic, written under the lock of the
    # index.
    word rebuilds
    # Times that a partition's producer epoch was raised, because batches failed that had sequence numbers.
    word epoch_bumps
    # Batches expired, queued or in flight.
    word batches_expired
    # Records of failed batches whose contributors were all dead: no process got the error.
    word records_lost
    # Monotonic ms of the last look of a supervised sender that waits for the role, 0 if none does. Such senders write
    # it without a lock. One that dies leaves a time that is soon too old to count.
    word heir_ms
    # Monotonic ms of the last answer with metadata, 0 before: a statistic.
    word metadata_ms
    # Incidents ever noted; raised before the incident of that number is written.
    word incidents
    # Sign of life: monotonic ms when the sender last began a pass or a sleep << 16 | most ms of the sleep.
    word sender_ran
    # Wall-clock ms when a broker first accepted a connection of this slab's senders; 0 before.
    word let_in_ms
    # Raised after every change of the settings, under the lifecycle byte; its lowest bit selects the valid copy; 0:
    # there are none yet.
    word settings_generation
    # Monotonic ns when a process last stored its `ProcessEntry.shortest_timeout`; written by that, without a lock. The
    # sender then recomputes its expiry times.
    word timeouts_changed
    # Monotonic ms when the creator of another slab last needed this one's memory; written by that, without a lock. An
    # idle sender leaves at once.
    word leave_request
    # Monotonic ms when the waiter queue last became longer than 0: a statistic, written under the pool's lock.
    word waiting_since_ms
    # Bytes in the largest batch that was given to a request: a statistic.
    word largest_batch
    # Times that a batch which its broker did not take as a whole was split: a statistic.
    word batches_split


cdef struct LockLine:
    # One cache line for each lock, so that two locks do not slow each other down. Written by who takes the lock, holds
    # it, or takes it over (`lock.pxi`).

    # The holder's ticket (`lock.pxi`): process entry + 1 | its incarnation << 16; 0 for none; UNFINISHED if a dead one
    # left a change half-done.
    word owner
    # Times that it was taken over from a dead holder.
    word takeovers
    word unused_2[6]


cdef struct ProcessEntry:
    # Six cache lines; each has one writer: attach, the process itself, or the sender.

    # Written at attach.

    # 0 unused, 1 in use (whether the process *lives*, the lock file shows).
    word state
    # Process id, in its own pid namespace.
    word pid
    # Its start time, in clock ticks since boot.
    word start_time
    # Inode of its pid namespace.
    word pid_namespace
    # Raised by every attach that takes this entry.
    word incarnation
    # Bits: 1 producer, 2 sender.
    word roles
    # Wall-clock milliseconds of the attach.
    word attached_ms
    # Smallest delivery.timeout.ms of its producers + 1; 0 while it has none.
    word shortest_timeout

    # Written by the process itself, at any time.

    # 0 unless one of its event loops listens for their doorbell; else the least `ring_tail` at which completions press
    # it.
    word loop_asleep
    # Number in the name of the doorbell of its event loops, a FIFO; raised, before they listen, if the file of that
    # name cannot be used; never reset.
    word loop_doorbell
    # 0 unless one of its threads listens for its wake-up semaphore; else the least `ring_tail` at which completions
    # wake it.
    word asleep
    # Number of flushes in progress.
    word flushing
    # Completions read.
    word ring_head
    # Number in the name of its wake-up semaphore; raised at attach, under the lifecycle byte, if the file of that name
    # cannot be used; never reset.
    word wakeup
    word unused_14[2]

    # Written by the sender.

    # Completions written.
    word ring_tail
    word unused_17[7]

    # Counters, written by the process; never reset: an entry's totals span its incarnations.

    # Records appended.
    word records
    # Bytes of those records.
    word bytes
    # Batches opened.
    word batches
    # Nanoseconds spent waiting for memory.
    word wait_ns
    # Times that it had to wait for memory.
    word waits
    # Times that a wait for memory timed out.
    word exhausted
    # Batches that it compressed, as the sender.
    word compressed
    word unused_31

    # Written at attach, for people.

    # Bytes in the name.
    word name_length
    # UTF-8: the program that the process runs.
    word name[8]
    # The counters from `records` on, as earlier incarnations have left them.
    word before[7]


cdef struct TopicEntry:
    # Written under the tables' lock, the state last.

    # A `TopicState`; stored last: it commits the entry.
    word state
    # Number of partitions, 0 while unknown; it drops when the topic is deleted, or recreated with fewer.
    word partitions
    # Partitions that the topic needed << 16 | Kafka's error code, 16 bits two's complement, when the state was last
    # FAILED; 0 before.
    word error
    # Bytes in the name.
    word name_length
    # Metadata responses that the sender has stored here: by a change of it, a waiter sees that there was one.
    word answers
    # Upper half of Kafka's topic id, 0 where the cluster has none; a recreated topic has another id.
    word id_high
    # Lower half of it; a sender that dies between the two halves leaves an id that no topic has.
    word id_low
    # The table's generation at the entry's last change; stored before the change, so that readers do not miss one that
    # a death interrupted.
    word changed
    # For each `Refusal`: calls of `send` and `send_batch` that failed before acceptance.
    # Producers write these and the next two, for people; a death between two stores leaves a count that is 1 too low.
    word refusals[6]
    # Kafka's error code of the last of these calls, 16 bits two's complement.
    word refused_error
    # Wall-clock milliseconds of that; 0 while there was none.
    word refused_ms
    # ASCII.
    word name[32]


cdef struct PartitionEntry:
    # The words from `head` to `next_position` are the deque: guarded by the partition's lock.

    # Lane entry + 1, 0 outside of transactions << 52 | (topic entry + 1) << 32 | partition number; 0 where unused;
    # stored last: it commits the entry. Written under the tables' lock.
    word key
    # Id of the leader's node + 1, or 0 where there is none; written by the sender.
    word leader
    # Index: first slot of the deque + 1, or 0.
    word head
    # Index: last slot of the deque + 1, or 0.
    word tail
    # Index: the last slot + 1 if it accepts records, or 0.
    word open
    # Index: batches in the deque.
    word queued
    # Index: queue position for the next batch.
    word next_position
    # 1 while batches wait for the outcome of those numbered before them; written by the sender.
    word held
    # Producer epoch << 32 | sequence number of the next batch to be numbered; written by the sender.
    word next_sequence
    # 1 while the partition is muted to keep its order; written by the sender.
    word muted
    # Batches sent without a response yet; written by the sender.
    word in_flight
    # Records acknowledged; written by the sender.
    word records_sent
    # Batches acknowledged; written by the sender.
    word batches_sent
    # Records failed with an error; written by the sender.
    word records_failed
    # Offset of the newest acknowledged record + 1; written by the sender.
    word last_offset
    # Producer epoch << 32 | sequence number after the last acknowledged record: the next one that the broker expects,
    # as far as is known. Sequence 0 if the epoch is not that of `next_sequence`. Written by the sender.
    word acked_sequence
    # Bytes in the acknowledged batches, as sent; written by the sender.
    word bytes_sent
    # Times that a batch went back to the front of the deque; written by the sender.
    word batches_retried
    # Batches failed with an error; written by the sender.
    word batches_failed
    # Number of the last incident; 0 while there was none; written by the sender.
    word error
    # Wall-clock milliseconds of that; written by the sender.
    word error_ms
    # Batches given to a request, each time that they were: a statistic, as are those that follow. The sender writes
    # them.
    word batches_drained
    # Records in them.
    word records_drained
    # Bytes in them, as sent.
    word bytes_drained
    # Sum, over these batches, of the thousandths of their size to which their records were compressed.
    word compression_drained
    # Records in batches that went back to the front of the deque, each time.
    word records_retried
    # Bytes up to which batches grow, learned from what the broker refused as too large; 0: it has refused none. Written
    # by the sender.
    word max_bytes
    # Wall-clock seconds of a look shortly before `acked_sequence` changed, 0 while it did not; written by the sender.
    word acked_s
    word unused_28[4]


cdef struct LaneEntry:
    # A lane carries one transaction at a time. Its holder writes it under the tables' lock, except `error`.

    # The holder's process entry + 1 | its incarnation << 16; 0 while there is none.
    word holder
    # Number of the lease << LEASE_SHIFT | how many transactions of it have ended: a deque refuses records of an
    # older lease or transaction.
    word generation
    # Kafka producer id + 1 of the transactional id; stored after all that depends on it. While it is 0, the sender
    # sends nothing of the lane and fails what is queued there.
    word producer_id
    # Epoch of that id in this transaction.
    word producer_epoch
    # Version of the transaction protocol: 1, or 2 (KIP-890).
    word version
    # 1 << 16 | Kafka's error code of the first batch of the transaction that failed, 0 while none has; written by the
    # sender before the batch completes. It then drops what is queued in the lane.
    word error
    # Wall-clock milliseconds when the lane was opened for this transaction, for people; stored before `producer_id`.
    word opened_ms
    # Number of the transaction, raised for each while the lane is empty: in version 1 of the protocol, the sender adds
    # its partitions to each.
    word transaction
    # Bytes in the transactional id.
    word id_length
    word unused_9[7]
    # UTF-8.
    word id[32]


cdef struct IncidentEntry:
    # The sender alone writes it; a death in between leaves number 0.

    # Number of the incident, from 1 on; stored last; 0 while the entry is written, which readers then ignore.
    word number
    # Kafka's error code, 16 bits two's complement.
    word code
    # Wall-clock milliseconds of the first time since it last ended.
    word first_ms
    # Wall-clock milliseconds of the last time.
    word last_ms
    # 1 while it lasts: the broker cannot be connected to.
    word lasts
    # Bytes in the text.
    word length
    # How often it happened.
    word count
    # Where it last happened: 1 << 32 | partition entry, or 2 << 32 | id of the broker's node in 32 bits; 0: unknown.
    word place
    # UTF-8.
    word text[56]


cdef struct BrokerEntry:
    # The sender alone writes it.

    # A `BrokerState`; a new entry's is stored last.
    word state
    # 32 bits two's complement: the broker's id; below 0 for an address of bootstrap.servers of an unknown broker.
    word node
    # Wall-clock milliseconds since when it is in this state.
    word since_ms
    # Connections that became ready.
    word connections
    # Connections that failed, while being opened or later.
    word failures
    # Requests without an answer.
    word in_flight
    # Monotonic milliseconds when the oldest of these was sent; 0 if there is none.
    word oldest_ms
    # Requests answered.
    word answers
    # Microseconds from the last answered request to its answer.
    word latency_us
    # Answers with which the broker throttled us.
    word throttles
    # Milliseconds for which it did, in all.
    word throttle_ms
    # Milliseconds of the longest of these times.
    word longest_throttle_ms
    # Monotonic milliseconds until which it throttles us; 0 if it never did.
    word throttled_ms
    # Number of its last incident; 0 while there was none.
    word incident
    # Wall-clock milliseconds of that.
    word incident_ms
    # Monotonic milliseconds of the last answer; 0 before the first.
    word answered_ms
    # Requests sent, of every kind.
    word requests
    # Bytes in them.
    word bytes_out
    # Bytes in the largest of them.
    word largest_request
    # Bytes in the answers.
    word bytes_in
    # Connections that were ready, and have ended.
    word closed
    # Connections that failed because one side did not accept the other's login or certificate.
    word refused
    # Times that a ready connection logged in again, before its session ended.
    word logins_again
    # Bytes in the address.
    word address_length
    # ``host:port``, ASCII.
    word address[32]


cdef struct HistogramEntry:
    # One writer: the sender, or the process of its entry. A death can leave a value out of the sum alone.

    # Sum of all values.
    word total
    # The largest value.
    word largest
    # How many values were in each bucket.
    word buckets[HISTOGRAM_BUCKETS]


cdef struct WaiterCell:
    # A ticket of the waiter queue, guarded by the pool's lock.

    # The waiter, its deadline and its look count (`core/pool.pxi`); 0 once it has left; stored after `slots`.
    word holder
    # Slots that it waits for.
    word slots


cdef struct CompletionCell:
    # Written by the sender before it raises `ProcessEntry.ring_tail`.

    # Generation << 24 | slot.
    word batch
    # Base offset + 1.
    word base_offset
    # Log append time + 1 << 16 | error code; with an error, number of its incident << 16 | error code.
    word result
    # First record << 32 | number of records; 0 records: all that follow; so 0: the whole batch.
    word range


cdef struct SlotHeader:
    # All but the two links is truth. The bitmap of contributors follows: one bit for each process entry. Guarded by the
    # pool's lock when the slot is allocated or freed. Then its owner alone writes it, until the batch is in a deque;
    # there, who holds the partition's lock; in flight and completing, the sender alone.

    # State | owner entry << 8 | owner's incarnation << 48; its store commits each step.
    word state
    # Raised by every allocation: (generation, slot) identifies a batch for ever.
    word generation
    # Partition entry.
    word partition
    # Place in its partition's queue; orders the deque.
    word position
    # Committed bytes << 25 | records << 1 | which cell holds the largest timestamp; one store commits a record.
    word commit
    # Two cells; `commit` selects the valid one.
    word max_timestamp[2]
    # Timestamp of the first record.
    word base_timestamp
    # Times that its delivery timeout restarted << 48 | monotonic milliseconds of its last start. It starts when the
    # batch is opened, and when a sender finds it left behind by dead processes.
    word created_ms
    # Attempts << 48 | monotonic milliseconds of the last attempt.
    word attempts
    # Producer id + 1 of the sequence.
    word producer_id
    # (epoch + 1) << 32 | base sequence; 0 before the first drain; stored after `producer_id`; void once the partition
    # has another producer id or epoch.
    word sequence
    # Result: base offset + 1.
    word base_offset
    # Result: log append time + 1 << 16 | error code; with an error, number of its incident << 16 | error code. Before
    # there is a result: number of the incident that ended the last attempt << 16.
    word result
    # Index: next slot in the deque + 1, or 0.
    word next
    # Index: previous slot in the deque + 1, or 0.
    word previous
    # Bytes in the largest record: a statistic.
    word max_record
    word unused_17
    # Records skipped << 24 | records completed: the first ones, whose result is complete. Skipped: those of them
    # without a sequence number, because they were never stored. The next record has the base sequence + completed -
    # skipped.
    word completed
    word unused_19
    # Of a split batch: end of the part that the result words are for << 24 | end of the part being sent, in records.
    # `0` while the batch is sent as a whole. A part begins where the completed records end, and is stored before it is
    # sent.
    word part
    # Next slot + 1 in the chain of a batch; valid only if a slot that is not FREE leads to it, within the number of its
    # `slots`. The slots after the first are FREE by their own headers.
    word chain
    # `linger.ms` << 8 | compression, as a number, of the producer that opened it; a producer with a lower `linger.ms`
    # lowers that when it appends, under the partition's lock.
    word linger
    # Bytes from which on the batch is full: `batch.size` of the producer that opened it; a producer with a lower one
    # lowers it when it appends, under the partition's lock.
    word full
    # Monotonic microseconds when it was opened: a statistic.
    word opened_us
    # Retries << 32 | delivery.timeout.ms: the largest of the producers that appended. One with a larger value raises
    # it when it appends, under the partition's lock and before `commit`. A death in between leaves it larger than
    # needed.
    word limits
    # Slots of the batch: valid while the state is not FREE. Written under the pool's lock alone, before `state` or, if
    # an open batch gets more slots, by one store that adds them.
    word slots
    # Two cells of 32 bits: CRC-32C of the batch's bytes behind the space of its header, combined with words of this
    # one (`core/checksum.pxi`). `commit` selects the valid one, and is stored after it. 0 in a slab without checksums.
    word checksums


cdef struct Sizes:
    # What fixes a slab's layout: slabs of equal sizes have the same. `slot_size` is in bytes.
    uint64_t slot_size
    uint64_t slot_count
    uint64_t max_processes
    uint64_t max_topics
    uint64_t max_partitions
    uint64_t max_lanes
    # Whether slot headers have checksums.
    uint64_t keeps_checksums


cdef struct Regions:
    # Where each region begins, in bytes from the start of the segment, in their order.
    uint64_t settings
    uint64_t locks
    uint64_t processes
    uint64_t topics
    uint64_t partitions
    uint64_t lanes
    uint64_t incidents
    uint64_t brokers
    uint64_t histograms
    uint64_t waiters
    uint64_t rings
    uint64_t bitmap
    uint64_t headers
    uint64_t slots
    uint64_t total_size

    # Completions that a ring holds: between two of a producer's appends, each slot can complete once, and each part of
    # a split batch that is in flight.
    uint64_t ring_length
    # Words in a slot header's bitmap of contributors.
    uint64_t contributor_words
    # Bytes in a slot header with its bitmap: whole cache lines.
    uint64_t header_size


cdef uint64_t _round_up(uint64_t size, uint64_t unit) noexcept nogil:
    return (size + unit - 1) // unit * unit


cdef uint64_t _behind(uint64_t begin, uint64_t count, uint64_t size) noexcept nogil:
    """Return where the region behind one of `count` entries begins."""
    return _round_up(begin + count * size, CACHE_LINE)


cdef Regions lay_out(const Sizes *sizes) noexcept nogil:
    """Return the layout of a slab, whose sizes are within their limits: then no sum exceeds 63 bits."""
    cdef Regions regions
    cdef uint64_t processes = sizes.max_processes
    cdef uint64_t histograms = SENDER_HISTOGRAMS + BROKERS + processes * PROCESS_HISTOGRAMS
    regions.ring_length = sizes.slot_count + PARTS_IN_FLIGHT
    regions.contributor_words = (processes + 63) // 64
    regions.header_size = _round_up(sizeof(SlotHeader) + regions.contributor_words * WORD, CACHE_LINE)
    regions.settings = _behind(0, 1, sizeof(Superblock))
    regions.locks = _behind(regions.settings, 2, SETTINGS_SIZE)
    regions.processes = _behind(regions.locks, LOCK_COUNT, sizeof(LockLine))
    regions.topics = _behind(regions.processes, processes, sizeof(ProcessEntry))
    regions.partitions = _behind(regions.topics, sizes.max_topics, sizeof(TopicEntry))
    regions.lanes = _behind(regions.partitions, sizes.max_partitions, sizeof(PartitionEntry))
    regions.incidents = _behind(regions.lanes, sizes.max_lanes, sizeof(LaneEntry))
    regions.brokers = _behind(regions.incidents, INCIDENTS + 1, sizeof(IncidentEntry))  # and the sender's log
    regions.histograms = _behind(regions.brokers, BROKERS, sizeof(BrokerEntry))
    regions.waiters = _behind(regions.histograms, histograms, sizeof(HistogramEntry))
    regions.rings = _behind(regions.waiters, WAITERS, sizeof(WaiterCell))
    regions.bitmap = _behind(regions.rings, processes * regions.ring_length, sizeof(CompletionCell))
    regions.headers = _behind(regions.bitmap, (sizes.slot_count + 63) // 64, WORD)
    regions.slots = _round_up(_behind(regions.headers, sizes.slot_count, regions.header_size), PAGE)
    regions.total_size = regions.slots + sizes.slot_count * sizes.slot_size
    return regions
