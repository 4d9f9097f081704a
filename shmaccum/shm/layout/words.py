"""Every word of the slab: its place in its region, and its meaning.

``docs/slab-layout.md`` is generated from these classes.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

MAGIC: Final = int.from_bytes(b"SHMACCUM", "little")


class SlotState(IntEnum):
    """A slot's state: the low 8 bits of its header's state word.

    ``FREE -> ALLOCATED -> OPEN -> CLOSED -> IN_FLIGHT -> COMPLETING -> FREE``. A batch that the sender sends again goes
    from IN_FLIGHT back to CLOSED; if only a part of a split batch is complete, it goes from COMPLETING back to CLOSED.
    """

    FREE = 0
    """No process owns it; its bit in the bitmap is set."""
    ALLOCATED = 1
    """Owned by the process in the owner field, not yet in a deque: freed if that process dies."""
    OPEN = 2
    """Last of its partition's deque; accepts records."""
    CLOSED = 3
    """In its partition's deque; accepts no records."""
    IN_FLIGHT = 4
    """The sender's; goes back to the front of its deque if the sender dies."""
    COMPLETING = 5
    """The result is in the header; the sender is pushing it to the contributors' rings."""


class TopicState(IntEnum):
    """A topic entry's state word."""

    UNUSED = 0
    """There is no such topic entry."""
    REQUESTED = 1
    """A producer needs the topic's metadata; the sender requests it."""
    KNOWN = 2
    """The topic exists; the entry has its number of partitions."""
    FAILED = 3
    """The sender's last metadata request for it failed; the entry's error word has the reason."""


class Refusal(IntEnum):
    """Why `send` or `send_batch` did not accept records; the label ``reason`` of monitoring is the name in small."""

    TOPIC = 0
    """There is no metadata of the topic, or the cluster does not allow its use."""
    MEMORY = 1
    """No memory became free in time."""
    TOO_LARGE = 2
    """A record is larger than ``max.request.size`` or the slab."""
    LOCK = 3
    """A stopped process held a lock for too long."""
    ARGUMENT = 4
    """An argument is not allowed, or cannot be serialized."""
    OTHER = 5
    """Any other error, such as a failed transaction."""


class Super:
    """Words of the superblock. Words 32 to 39 belong to the BufferPool, those from 40 on are the sender's counters."""

    MAGIC: Final = 0
    """``SHMACCUM``"""
    ABI: Final = 1
    """`ABI_VERSION`"""
    READY: Final = 2
    """1 once the creator has finished; anything else is what a creator left that died before"""
    TOTAL_SIZE: Final = 3
    """bytes in the segment"""
    OWNER_UID: Final = 4
    """user id of the creator"""
    DIGEST: Final = 5
    """digest of the settings that all users of the slab must agree on; lower 32 bits: of the secret ones"""
    SLOT_SIZE: Final = 6
    """bytes in a slot: batch.size"""
    SLOT_COUNT: Final = 7
    """slots: buffer.memory / batch.size"""
    MAX_PROCESSES: Final = 8
    """entries in the process table"""
    MAX_TOPICS: Final = 9
    """entries in the topic table"""
    MAX_PARTITIONS: Final = 10
    """entries in the partition table"""
    CREATED_MS: Final = 11
    """wall-clock milliseconds of the creation"""
    REDO_SIZE: Final = 12
    """bytes in a stripe's redo area: a slot's where producers compress in place, else 0"""
    TOKEN: Final = 13
    """first of `TOKEN_WORDS` random words, stored by the creator: the names of the semaphores and of the doorbell
    derive from them, so that no other user can guess a name"""
    SENDER_ENTRY: Final = 16
    """process entry of the newest sender + 1; whether it still has the role, the lock file shows"""
    SENDER_ASLEEP: Final = 17
    """monotonic ns when the sender began to wait for its doorbell, 0 while awake; change first, then press the
    doorbell"""
    SENDER_STARTS: Final = 18
    """senders that have served this slab"""
    PRODUCER_ID: Final = 19
    """Kafka producer id + 1, 0 while there is none; stored after the words that depend on it"""
    PRODUCER_EPOCH: Final = 20
    """epoch that the broker gave with it; a partition's own epoch can be higher"""
    METADATA_REQUESTS: Final = 21
    """raised by every producer that requests a topic's metadata"""
    SENDER_WAKES: Final = 22
    """monotonic ms by which a sleeping sender wakes without a doorbell; 0 while unknown"""
    TOPIC_COUNT: Final = 24
    """topic entries in use: always the first ones"""
    PARTITION_COUNT: Final = 25
    """partition entries in use: always the first ones"""
    GENERATION: Final = 26
    """raised after every change of the topic or partition table: copies of them are then stale"""
    MAX_LANES: Final = 27
    """entries in the lane table"""
    LANE_COUNT: Final = 28
    """lane entries in use: always the first ones"""
    LANES_CHANGED: Final = 29
    """raised whenever a lane stops accepting records: the sender then drops what is queued there"""
    REFUSALS: Final = 30
    """refused calls of `send` whose topic has no entry: its name is not allowed, or the table is full. Producers write
    it under the tables' lock"""
    FREE_SLOTS: Final = 32
    """index: slots free now"""
    PEAK_SLOTS: Final = 33
    """most slots ever in use at once"""
    TOUCHED_SLOTS: Final = 34
    """slots below this number have been in use at some time, the others never"""
    WAITER_HEAD: Final = 35
    """ticket of the first waiter"""
    WAITER_TAIL: Final = 36
    """ticket that the next waiter will draw"""
    RECLAIMED_SLOTS: Final = 37
    """slots freed after their owner died before it used them"""
    REBUILDS: Final = 38
    """times that indexes were rebuilt from the slot headers after a death or an interrupt"""
    ENOUGH_SLOTS: Final = 39
    """number of free slots at which the first waiter is woken"""
    BATCHES_SENT: Final = 40
    """batches acknowledged"""
    RECORDS_SENT: Final = 41
    """records in them"""
    BYTES_SENT: Final = 42
    """bytes in them, as sent"""
    BATCHES_FAILED: Final = 43
    """batches failed with an error"""
    RECORDS_FAILED: Final = 44
    """records in them"""
    BATCHES_RETRIED: Final = 45
    """times that a batch went back to the front of its deque"""
    REQUESTS_SENT: Final = 46
    """produce requests"""
    FILL_BYTES: Final = 47
    """uncompressed bytes in the acknowledged batches: the filled part of their slots"""
    CAPACITY_BYTES: Final = 48
    """bytes in the slots of the acknowledged batches"""
    EPOCH_BUMPS: Final = 50
    """times that a partition's producer epoch was raised, because batches failed that had sequence numbers"""
    BATCHES_EXPIRED: Final = 51
    """batches expired, queued or in flight"""
    RECORDS_LOST: Final = 52
    """records of failed batches whose contributors were all dead: no process got the error"""
    HEIR_MS: Final = 53
    """monotonic ms of the last look of a supervised sender that waits for the role, 0 if none does. Such senders write
    it without a lock. One that dies leaves a time that is soon too old to count"""
    METADATA_MS: Final = 54
    """monotonic ms of the last answer with metadata, 0 before: a statistic"""
    INCIDENTS: Final = 55
    """incidents ever noted; raised before the incident of that number is written"""
    SENDER_RAN: Final = 56
    """sign of life: monotonic ms when the sender last began a pass or a sleep << 16 | most ms of the sleep"""
    LET_IN_MS: Final = 57
    """wall-clock ms when a broker first accepted a connection of this slab's senders; 0 before"""
    SETTINGS_GENERATION: Final = 58
    """raised after every change of the settings, under the lifecycle byte; its lowest bit selects the valid copy; 0:
    there are none yet"""
    TIMEOUTS_CHANGED: Final = 59
    """monotonic ns when a process last stored its `Process.SHORTEST_TIMEOUT`; the sender then recomputes its expiry
    times"""
    LEAVE_REQUEST: Final = 60
    """monotonic ms when the creator of another slab last needed this one's memory: an idle sender leaves at once"""
    WAITING_SINCE_MS: Final = 61
    """monotonic ms when the waiter queue last became longer than 0: a statistic"""
    LARGEST_BATCH: Final = 62
    """bytes in the largest batch that was given to a request: a statistic"""
    BATCHES_SPLIT: Final = 63
    """times that a batch which its broker did not take as a whole was split: a statistic"""


class Lock:
    """Words of a lock's cache line."""

    OWNER: Final = 0
    """process entry + 1 of the holder; 0 for none; `UNFINISHED_OWNER` if the last one was interrupted in a change"""
    TAKEOVERS: Final = 1
    """times that it was taken over from a dead holder"""


UNFINISHED_OWNER: Final = 0xFFFF
"""Owner word of a free lock whose last holder was interrupted: the next holder rebuilds first."""


class Process:
    """Words of a process entry (eleven cache lines; comments name each line's writer)."""

    # written at attach
    STATE: Final = 0
    """0 unused, 1 in use (whether the process *lives*, the lock file shows)"""
    PID: Final = 1
    """process id, in its own pid namespace"""
    START_TIME: Final = 2
    """its start time, in clock ticks since boot"""
    PID_NAMESPACE: Final = 3
    """inode of its pid namespace"""
    INCARNATION: Final = 4
    """raised by every attach that takes this entry"""
    ROLES: Final = 5
    """bits: 1 producer, 2 sender"""
    ATTACHED_MS: Final = 6
    """wall-clock milliseconds of the attach"""
    SHORTEST_TIMEOUT: Final = 7
    """smallest delivery.timeout.ms of its producers + 1; 0 while it has none"""
    # written by the process itself, at any time
    WANTS: Final = 8
    """number of the lock that it waits for or holds + 1, or 0 (takeover protocol)"""
    LOOP_ASLEEP: Final = 9
    """0 unless one of its event loops listens for their doorbell; else the least RING_TAIL at which completions press
    it"""
    LOOP_DOORBELL: Final = 10
    """number in the name of the doorbell of its event loops, a FIFO; raised, before they listen, if the file of that
    name cannot be used; never reset"""
    ASLEEP: Final = 11
    """0 unless one of its threads listens for its wake-up semaphore; else the least RING_TAIL at which completions
    wake it"""
    FLUSHING: Final = 12
    """number of flushes in progress"""
    RING_HEAD: Final = 13
    """completions read"""
    WAKEUP: Final = 14
    """number in the name of its wake-up semaphore; raised at attach, under the lifecycle byte, if the file of that name
    cannot be used; never reset"""
    # written by the sender
    RING_TAIL: Final = 16
    """completions written"""
    # counters of the process, never reset: an entry's totals span its incarnations
    RECORDS: Final = 24
    """records appended"""
    BYTES: Final = 25
    """bytes of those records"""
    BATCHES: Final = 26
    """batches opened"""
    WAIT_NS: Final = 27
    """nanoseconds spent waiting for memory"""
    WAITS: Final = 28
    """times that it had to wait for memory"""
    EXHAUSTED: Final = 29
    """times that a wait for memory timed out"""
    COMPRESSED: Final = 30
    """batches compressed: by a producer when it closed them; by the sender, those that were not compressed yet"""
    # written by the process itself, a word for each lock
    PARKED: Final = 32
    """first of `LOCK_COUNT` words: raised when a slice of waiting for the lock runs out (takeover protocol)"""
    RELEASED: Final = 50
    """first of `LOCK_COUNT` words: raised when it releases the lock (takeover protocol)"""
    # written at attach, for people
    NAME_LENGTH: Final = 71
    """bytes in the name"""
    NAME: Final = 72
    """first word of the name, UTF-8: the program that the process runs"""
    BEFORE: Final = 80
    """first of `PROCESS_COUNTERS` words: the counters from RECORDS on, as earlier incarnations have left them"""


class Role(IntFlag):
    """Bits of `Process.ROLES`."""

    PRODUCER = 1
    SENDER = 2


class Topic:
    """Words of a topic entry; the name's bytes follow."""

    STATE: Final = 0
    """a `TopicState`; stored last: it commits the entry"""
    PARTITIONS: Final = 1
    """number of partitions, 0 while unknown; it drops when the topic is deleted, or recreated with fewer"""
    ERROR: Final = 2
    """partitions that the topic needed << 16 | Kafka's error code, 16 bits two's complement, when the state was last
    FAILED; 0 before"""
    NAME_LENGTH: Final = 3
    """bytes in the name"""
    ANSWERS: Final = 4
    """metadata responses that the sender has stored here: by a change of it, a waiter sees that there was one"""
    ID_HIGH: Final = 5
    """upper half of Kafka's topic id, 0 where the cluster has none; a recreated topic has another id"""
    ID_LOW: Final = 6
    """lower half of it; a sender that dies between the two halves leaves an id that no topic has"""
    CHANGED: Final = 7
    """the table's generation at the entry's last change; stored before the change, so that readers do not miss one
    that a death interrupted"""
    REFUSALS: Final = 8
    """first of six words, one for each `Refusal`: calls of `send` and `send_batch` that failed before acceptance.
    Producers write these and the next two, for people; a death between two stores leaves a count that is 1 too low"""
    REFUSED_ERROR: Final = 14
    """Kafka's error code of the last of these calls, 16 bits two's complement"""
    REFUSED_MS: Final = 15
    """wall-clock milliseconds of that; 0 while there was none"""
    NAME: Final = 16
    """first word of the name, ASCII"""


class Partition:
    """Words of a partition entry."""

    KEY: Final = 0
    """lane entry + 1, 0 outside of transactions << 52 | (topic entry + 1) << 32 | partition number; 0 where unused;
    stored last: it commits the entry"""
    LEADER: Final = 1
    """id of the leader's node + 1, or 0 where there is none; written by the sender"""
    HEAD: Final = 2
    """index: first slot of the deque + 1, or 0"""
    TAIL: Final = 3
    """index: last slot of the deque + 1, or 0"""
    OPEN: Final = 4
    """index: the last slot + 1 if it accepts records, or 0"""
    QUEUED: Final = 5
    """index: batches in the deque"""
    NEXT_POSITION: Final = 6
    """index: queue position for the next batch"""
    HELD: Final = 7
    """1 while batches wait for the outcome of those numbered before them; written by the sender"""
    NEXT_SEQUENCE: Final = 8
    """producer epoch << 32 | sequence number of the next batch to be numbered; written by the sender"""
    MUTED: Final = 9
    """1 while the partition is muted to keep its order; written by the sender"""
    IN_FLIGHT: Final = 10
    """batches sent without a response yet; written by the sender"""
    RECORDS_SENT: Final = 11
    """records acknowledged; written by the sender"""
    BATCHES_SENT: Final = 12
    """batches acknowledged; written by the sender"""
    RECORDS_FAILED: Final = 13
    """records failed with an error; written by the sender"""
    LAST_OFFSET: Final = 14
    """offset of the newest acknowledged record + 1; written by the sender"""
    ACKED_SEQUENCE: Final = 15
    """producer epoch << 32 | sequence number after the last acknowledged record: the next one that the broker expects,
    as far as is known. Sequence 0 if the epoch is not that of NEXT_SEQUENCE. Written by the sender"""
    BYTES_SENT: Final = 16
    """bytes in the acknowledged batches, as sent; written by the sender"""
    BATCHES_RETRIED: Final = 17
    """times that a batch went back to the front of the deque; written by the sender"""
    BATCHES_FAILED: Final = 18
    """batches failed with an error; written by the sender"""
    ERROR: Final = 19
    """number of the last incident; 0 while there was none; written by the sender"""
    ERROR_MS: Final = 20
    """wall-clock milliseconds of that; written by the sender"""
    BATCHES_DRAINED: Final = 21
    """batches given to a request, each time that they were: a statistic, as are those that follow. The sender writes
    them"""
    RECORDS_DRAINED: Final = 22
    """records in them"""
    BYTES_DRAINED: Final = 23
    """bytes in them, as sent"""
    COMPRESSION_DRAINED: Final = 24
    """sum, over these batches, of the thousandths of their size to which their records were compressed"""
    RECORDS_RETRIED: Final = 25
    """records in batches that went back to the front of the deque, each time"""


class Lane:
    """Words of a lane, which carries one transaction at a time; the bytes of its transactional id follow.

    The process that holds it writes them under the tables' lock, except ERROR.
    """

    HOLDER: Final = 0
    """the holder's process entry + 1 | its incarnation << 16; 0 while there is none"""
    GENERATION: Final = 1
    """number of the lease << `LEASE_SHIFT` | how many transactions of it have ended: a deque refuses records of an
    older lease or transaction"""
    PRODUCER_ID: Final = 2
    """Kafka producer id + 1 of the transactional id; stored after all that depends on it. While it is 0, the sender
    sends nothing of the lane and fails what is queued there"""
    PRODUCER_EPOCH: Final = 3
    """epoch of that id in this transaction"""
    VERSION: Final = 4
    """version of the transaction protocol: 1, or 2 (KIP-890)"""
    ERROR: Final = 5
    """1 << 16 | Kafka's error code of the first batch of the transaction that failed, 0 while none has; written by the
    sender before the batch completes. It then drops what is queued in the lane"""
    OPENED_MS: Final = 6
    """wall-clock milliseconds when the lane was opened for this transaction, for people; stored before PRODUCER_ID"""
    ID_LENGTH: Final = 7
    """bytes in the transactional id"""
    ID: Final = 8
    """first word of the transactional id, UTF-8"""


class Incident:
    """Words of an incident; the bytes of its text follow. The sender alone writes them; a death leaves NUMBER 0."""

    NUMBER: Final = 0
    """number of the incident, from 1 on; stored last; 0 while the entry is written, which readers then ignore"""
    CODE: Final = 1
    """Kafka's error code, 16 bits two's complement"""
    FIRST_MS: Final = 2
    """wall-clock milliseconds of the first time since it last ended"""
    LAST_MS: Final = 3
    """wall-clock milliseconds of the last time"""
    LASTS: Final = 4
    """1 while it lasts: the broker cannot be connected to"""
    LENGTH: Final = 5
    """bytes in the text"""
    COUNT: Final = 6
    """how often it happened"""
    PLACE: Final = 7
    """where it last happened: 1 << 32 | partition entry, or 2 << 32 | id of the broker's node in 32 bits; 0: unknown"""
    TEXT: Final = 8
    """first word of the text, UTF-8"""


class Slot:
    """Words of a slot header. All but the two links are truth."""

    STATE: Final = 0
    """state | owner entry << 8 | slots of the batch << 24 | owner's incarnation << 48; its store commits each step"""
    GENERATION: Final = 1
    """raised by every allocation: (generation, slot) identifies a batch for ever"""
    PARTITION: Final = 2
    """partition entry"""
    POSITION: Final = 3
    """place in its partition's queue; orders the deque"""
    COMMIT: Final = 4
    """committed bytes << 25 | records << 1 | which cell holds the largest timestamp; one store commits a record"""
    MAX_TIMESTAMP: Final = 5
    """two cells; the commit word selects the valid one"""
    BASE_TIMESTAMP: Final = 7
    """timestamp of the first record"""
    CREATED_MS: Final = 8
    """times that its delivery timeout restarted << 48 | monotonic milliseconds of its last start. It starts when the
    batch is opened, and when a sender finds it left behind by dead processes"""
    ATTEMPTS: Final = 9
    """attempts << 48 | monotonic milliseconds of the last attempt"""
    PRODUCER_ID: Final = 10
    """producer id + 1 of the sequence"""
    SEQUENCE: Final = 11
    """(epoch + 1) << 32 | base sequence; 0 before the first drain; stored after PRODUCER_ID; void once the partition
    has another producer id or epoch"""
    BASE_OFFSET: Final = 12
    """result: base offset + 1"""
    RESULT: Final = 13
    """result: log append time + 1 << 16 | error code; with an error, number of its incident << 16 | error code. Before
    there is a result: number of the incident that ended the last attempt << 16"""
    NEXT: Final = 14
    """index: next slot in the deque + 1, or 0"""
    PREVIOUS: Final = 15
    """index: previous slot in the deque + 1, or 0"""
    MAX_RECORD: Final = 16
    """bytes in the largest record: a statistic"""
    DRAINED_MS: Final = 17
    """monotonic milliseconds of the last drain: a statistic"""
    SETTLED: Final = 18
    """records skipped << 24 | records settled. Settled: the first ones, whose result is complete. Skipped: those of
    them without a sequence number, because they were never stored. The next record has the base sequence + settled
    - skipped"""
    SEALING: Final = 19
    """monotonic milliseconds when the producer that closed it began to compress it; 0 if none does, and outside of
    a deque"""
    COMPRESSED: Final = 20
    """bytes in the slot << 8 | compression; 0: uncompressed, with the bytes of COMMIT, and the sender can compress
    them"""
    REDO: Final = 21
    """value of COMPRESSED once the stripe's redo area has been copied here; 0 when that is done"""
    PART: Final = 22
    """of a split batch: end of the part that the result words are for << 24 | end of the part being sent, in records.
    `0` while the batch is sent as a whole. A part begins where the settled records end, and is stored before it is
    sent"""
    CHAIN: Final = 23
    """next slot + 1 in the chain of a batch of several slots, 0 in the last one; valid only if a slot that is not
    FREE leads to it. The slots after the first are FREE by their own headers"""
    LINGER: Final = 24
    """linger.ms << 8 | compression, as in COMPRESSED, of the producer that opened it; a producer with a lower linger.ms
    lowers it when it appends, under the partition's lock"""
    OPENED_US: Final = 25
    """monotonic microseconds when it was opened: a statistic"""
    LIMITS: Final = 26
    """retries << 32 | delivery.timeout.ms: the largest of the producers that appended. One with a larger value raises
    it when it appends, under the partition's lock and before COMMIT. A death in between leaves it larger than needed"""
    CONTRIBUTORS: Final = 27
    """bitmap of the contributors' process entries, one bit each"""


class Waiter:
    """Words of a ticket's cell in the waiter queue."""

    HOLDER: Final = 0
    """the waiter, its deadline and its look count (`shmaccum.pool.waiters`); 0 once it has left; stored after SLOTS"""
    SLOTS: Final = 1
    """slots that it waits for"""


class Completion:
    """Words of a completion in a ring."""

    BATCH: Final = 0
    """generation << 24 | slot"""
    BASE_OFFSET: Final = 1
    """base offset + 1"""
    RESULT: Final = 2
    """log append time + 1 << 16 | error code; with an error, number of its incident << 16 | error code"""
    RANGE: Final = 3
    """first record << 32 | number of records; 0 records: all that follow; so 0: the whole batch"""
