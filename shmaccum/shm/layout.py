"""The slab's memory layout: the only module that knows where anything is.

One segment holds everything, in this order; every region starts on a cache line and the slots on a page::

    +----------------------+ 0
    | superblock           | who made it, for which settings, how large; the sender's words; counters
    +----------------------+
    | settings             | twice: what its users agree on, and what they share, as JSON; never a password
    +----------------------+
    | locks                | one cache line each: who owns it (the semaphore itself is named, elsewhere)
    +----------------------+
    | process table        | one entry a process: identity, its lock words, its wakeup, its ring's ends
    +----------------------+
    | topic table          | name, state of its metadata, number of partitions
    +----------------------+
    | partition table      | topic and number, leader, deque of batches, sequence, counters
    +----------------------+
    | incidents            | a ring of what went wrong between the sender and the brokers, in words; the sender's log
    +----------------------+
    | waiter queue         | a ring of tickets: who waits for memory, in order of arrival
    +----------------------+
    | completion rings     | one a process: what became of the batches that it contributed to
    +----------------------+
    | free-list bitmap     | one bit a slot, set where free
    +----------------------+
    | slot headers         | the truth about every slot
    +----------------------+
    | redo areas           | one a stripe, where there are any: compressed records on their way into a slot
    +----------------------+ page
    | slots                | batch.size bytes each: the records
    +----------------------+ total size

Everything but the settings, the redo areas and the slots is made of aligned 8-byte words, read and written as unsigned
integers, so that every store is one store: a process may be killed between any two of them.
A word is addressed by its *index* in the segment (byte offset / 8): that of its entry plus the number below.

The slot headers are the truth. A word marked *index* below follows from them: it is believed only under its lock,
and rebuilt from them after a death.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Final

from shmaccum.abi import ABI_VERSION as ABI_VERSION

WORD: Final = 8
CACHE_LINE: Final = 64
PAGE: Final = 4096

MAGIC: Final = int.from_bytes(b"SHMACCUM", "little")


class SlotState(IntEnum):
    """What a slot header's state word says in its low 8 bits.

    ``FREE -> ALLOCATED -> OPEN -> CLOSED -> IN_FLIGHT -> COMPLETING -> FREE``; a drained batch that is
    to be tried again goes from IN_FLIGHT back to CLOSED, and one of which only a piece is complete from COMPLETING.
    """

    FREE = 0
    """Nobody's; its bit in the bitmap is set."""
    ALLOCATED = 1
    """Taken by the process in the owner field, not yet in a deque: freed if that process dies."""
    OPEN = 2
    """Last of its partition's deque; records are being appended."""
    CLOSED = 3
    """In its partition's deque; takes no more records."""
    IN_FLIGHT = 4
    """The sender's; put back at the front of its deque if the sender dies."""
    COMPLETING = 5
    """The result is in the header and is being told to those who contributed."""


class TopicState(IntEnum):
    """What a topic entry's state word says."""

    UNUSED = 0
    """There is no such topic entry."""
    REQUESTED = 1
    """A producer wants to know of it; the sender is to find out."""
    KNOWN = 2
    """It has the number of partitions that the entry says."""
    FAILED = 3
    """The sender found out that there is no such topic; the entry's error word says why."""


class Super:
    """Words of the superblock. Words 32 to 39 are the BufferPool's, those from 40 on the sender's counters."""

    MAGIC: Final = 0
    """``SHMACCUM``"""
    ABI: Final = 1
    """`ABI_VERSION`"""
    READY: Final = 2
    """1 once the creator has finished; anything else is the remains of one that died on the way"""
    TOTAL_SIZE: Final = 3
    """bytes in the segment"""
    OWNER_UID: Final = 4
    """user id of the creator"""
    DIGEST: Final = 5
    """digest of the settings that all users of the slab must agree on; the secret ones in the lower 32 bits"""
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
    """first of `TOKEN_WORDS` random words, stored by the creator: what the names of the semaphores and of the doorbell
    are made from, so that no other user can guess them"""
    SENDER_ENTRY: Final = 16
    """process entry of the newest sender + 1; who *is* the sender, the kernel knows (lock file)"""
    SENDER_ASLEEP: Final = 17
    """when the sender began to wait for its doorbell, monotonic ns, 0 while it does not; ring after what concerns it"""
    SENDER_STARTS: Final = 18
    """senders that have served this slab"""
    PRODUCER_ID: Final = 19
    """Kafka producer id + 1, 0 while there is none; stored after what follows from it"""
    PRODUCER_EPOCH: Final = 20
    """epoch that it came with; a partition's own may be higher"""
    METADATA_REQUESTS: Final = 21
    """raised by every producer that asks for a topic's metadata"""
    SENDER_WAKES: Final = 22
    """when the sender, asleep, looks by itself at the latest, monotonic ms; 0 while it is not known"""
    TOPIC_COUNT: Final = 24
    """topic entries in use, always the first ones"""
    PARTITION_COUNT: Final = 25
    """partition entries in use, always the first ones"""
    GENERATION: Final = 26
    """raised after every change of the topic or partition table: refresh your copy"""
    FREE_SLOTS: Final = 32
    """index: slots free now"""
    PEAK_SLOTS: Final = 33
    """most slots ever in use at once"""
    TOUCHED_SLOTS: Final = 34
    """slots below this number have been in use at some time; the others never"""
    WAITER_HEAD: Final = 35
    """ticket of the first waiter"""
    WAITER_TAIL: Final = 36
    """ticket that the next waiter will draw"""
    RECLAIMED_SLOTS: Final = 37
    """slots taken back from processes that died before they used them"""
    REBUILDS: Final = 38
    """times that indexes were rebuilt from the slot headers after a death or an interruption"""
    ENOUGH_SLOTS: Final = 39
    """how many slots must be free before the first waiter is woken for them"""
    BATCHES_SENT: Final = 40
    """batches acknowledged"""
    RECORDS_SENT: Final = 41
    """records in them"""
    BYTES_SENT: Final = 42
    """bytes in them, as sent"""
    BATCHES_FAILED: Final = 43
    """batches given up with an error"""
    RECORDS_FAILED: Final = 44
    """records in them"""
    BATCHES_RETRIED: Final = 45
    """times that a batch went back to the front of its deque"""
    REQUESTS_SENT: Final = 46
    """produce requests"""
    FILL_BYTES: Final = 47
    """uncompressed bytes in the acknowledged batches: what of their slots was filled"""
    CAPACITY_BYTES: Final = 48
    """bytes in the slots of the acknowledged batches"""
    EPOCH_BUMPS: Final = 50
    """times that a partition's producer epoch was raised, because numbers that had been given led nowhere"""
    BATCHES_EXPIRED: Final = 51
    """batches given up because of their age, queued or in flight"""
    RECORDS_LOST: Final = 52
    """records given up when all who had appended to their batch were dead: nobody was told"""
    HEIR_MS: Final = 53
    """monotonic ms of the last look of a supervised sender that waits for the role, 0 if none does; written by such
    senders, without a lock; one that dies leaves a time that soon is too long ago to count"""
    INCIDENTS: Final = 55
    """incidents ever noted; raised before the incident of that number is written"""
    SENDER_RAN: Final = 56
    """sign of life: monotonic ms when the sender last began a pass, or a sleep, << 16 | ms that it sleeps at most"""
    LET_IN_MS: Final = 57
    """wall-clock ms when a broker first let a sender of this slab in; 0 while none has"""
    SETTINGS_GENERATION: Final = 58
    """raised after every change of the settings, under the lifecycle byte; the copy at its remainder by two counts; 0:
    there are none yet"""
    LIMITS_CHANGED: Final = 59
    """monotonic ns when a process last stored its `Process.LIMITS`; the sender looks once more what expires when"""
    LEAVE_REQUEST: Final = 60
    """monotonic ms when another slab's creator last wanted the room of this one: an idle sender leaves at once"""


class Lock:
    """Words of a lock's cache line."""

    OWNER: Final = 0
    """process entry + 1 of the holder; 0 for none; `UNFINISHED_OWNER` after one that left in mid-change"""
    TAKEOVERS: Final = 1
    """times that it was taken over from a dead holder"""


UNFINISHED_OWNER: Final = 0xFFFF
"""Owner word of a free lock whose last holder was interrupted: the next one rebuilds first."""


class Process:
    """Words of a process entry (nine cache lines: who writes which line is in the comments)."""

    # written at attach
    STATE: Final = 0
    """0 unused, 1 in use (whether it is *alive*, the kernel knows: lock file)"""
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
    LIMITS: Final = 7
    """of its producers, the most: retries << 32 | delivery.timeout.ms + 1; 0 while it has none"""
    # written by the process itself as it goes
    WANTS: Final = 8
    """number of the lock that it waits for or holds + 1, or 0 (takeover protocol)"""
    ASLEEP: Final = 11
    """0 unless one of its threads listens for its wakeup; completions ring it when so many have been written, ever"""
    FLUSHING: Final = 12
    """number of flushes in progress"""
    RING_HEAD: Final = 13
    """completions read"""
    WAKEUP: Final = 14
    """number in the name of its wakeup's semaphore; raised under the lifecycle byte, at attach, where what has the name
    cannot be used; never reset"""
    # written by the sender
    RING_TAIL: Final = 16
    """completions written"""
    # counters of the process, never reset: an entry's totals go on over its incarnations
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
    """times that waiting for memory ended without any"""
    COMPRESSED: Final = 30
    """batches compressed: of a producer, as they were closed; of the sender, those that nobody had compressed"""
    # written by the process itself, a word for each lock
    PARKED: Final = 32
    """first of `LOCK_COUNT` words: raised each time that a slice of waiting for the lock ran out (takeover protocol)"""
    RELEASED: Final = 50
    """first of `LOCK_COUNT` words: raised each time that it let go of the lock (takeover protocol)"""


class Role(IntFlag):
    """Bits of `Process.ROLES`."""

    PRODUCER = 1
    SENDER = 2


class Topic:
    """Words of a topic entry; the name's bytes follow."""

    STATE: Final = 0
    """a `TopicState`; stored last: it commits the entry"""
    PARTITIONS: Final = 1
    """number of partitions, 0 where they are not known; it drops when the topic is deleted, or recreated with fewer"""
    ERROR: Final = 2
    """partitions that the topic needed << 16 | Kafka's error code, 16 bits two's complement, of the last time that the
    state was FAILED; 0 before"""
    NAME_LENGTH: Final = 3
    """bytes in the name"""
    ANSWERS: Final = 4
    """how many times the sender has said what it found out: who waits for that sees by it that it did"""
    ID_HIGH: Final = 5
    """upper half of Kafka's topic id, 0 where the cluster has none: a topic that is made again has another one"""
    ID_LOW: Final = 6
    """lower half of it; a sender that dies between the two halves leaves an id that no topic has"""
    CHANGED: Final = 7
    """the table's generation at the entry's last change; stored before the change, so that nobody misses one that a
    death cut short"""
    NAME: Final = 8
    """first word of the name, ASCII"""


class Partition:
    """Words of a partition entry."""

    KEY: Final = 0
    """(topic entry + 1) << 32 | partition number; 0 where unused; stored last: it commits the entry"""
    LEADER: Final = 1
    """id of the leader's node + 1, or 0 where there is none; written by the sender"""
    HEAD: Final = 2
    """index: first slot of the deque + 1, or 0"""
    TAIL: Final = 3
    """index: last slot of the deque + 1, or 0"""
    OPEN: Final = 4
    """index: the last slot + 1 if it takes records, or 0"""
    QUEUED: Final = 5
    """index: batches in the deque"""
    NEXT_POSITION: Final = 6
    """index: queue position for the next batch"""
    HELD: Final = 7
    """1 while batches wait for what becomes of those numbered before them; written by the sender"""
    NEXT_SEQUENCE: Final = 8
    """producer epoch << 32 | sequence number of the next batch to be numbered; written by the sender"""
    MUTED: Final = 9
    """1 while ordering demands that nothing more is sent; written by the sender"""
    IN_FLIGHT: Final = 10
    """batches sent and not yet answered; written by the sender"""
    RECORDS_SENT: Final = 11
    """records acknowledged; written by the sender"""
    BATCHES_SENT: Final = 12
    """batches acknowledged; written by the sender"""
    RECORDS_FAILED: Final = 13
    """records given up with an error; written by the sender"""
    LAST_OFFSET: Final = 14
    """offset of the newest acknowledged record + 1; written by the sender"""
    ACKED_SEQUENCE: Final = 15
    """producer epoch << 32 | sequence number behind the last acknowledged record: what the broker expects next, as far
    as is known; sequence 0 where the epoch is not that of NEXT_SEQUENCE; written by the sender"""


class Incident:
    """Words of an incident; the bytes of its text follow. The sender alone writes them; a death leaves NUMBER 0."""

    NUMBER: Final = 0
    """which incident it is, from 1 on; 0 while it is being written, and ignored then; stored last"""
    CODE: Final = 1
    """Kafka's error code, 16 bits two's complement"""
    FIRST_MS: Final = 2
    """wall-clock milliseconds when it happened first, without an end since"""
    LAST_MS: Final = 3
    """wall-clock milliseconds when it happened last"""
    LASTS: Final = 4
    """1 while it goes on: a broker that cannot be connected to"""
    LENGTH: Final = 5
    """bytes in the text"""
    TEXT: Final = 8
    """first word of the text, UTF-8"""


class Slot:
    """Words of a slot header. All of them are truth but the two links."""

    STATE: Final = 0
    """state | owner entry << 8 | slots of the batch << 24 | owner's incarnation << 48; the store that counts"""
    GENERATION: Final = 1
    """raised by every allocation: (generation, slot) names a batch for ever"""
    PARTITION: Final = 2
    """partition entry"""
    POSITION: Final = 3
    """place in its partition's queue; orders the deque"""
    COMMIT: Final = 4
    """bytes << 25 | records << 1 | which cell holds the largest timestamp: what is committed, in one store"""
    MAX_TIMESTAMP: Final = 5
    """two cells; the commit word says which one counts"""
    BASE_TIMESTAMP: Final = 7
    """timestamp of the first record"""
    CREATED_MS: Final = 8
    """times that its time began anew << 48 | monotonic milliseconds when it began: when the batch was opened, or when a
    sender found it left behind by dead processes"""
    ATTEMPTS: Final = 9
    """attempts << 48 | monotonic milliseconds of the last attempt"""
    PRODUCER_ID: Final = 10
    """producer id + 1 given with the sequence"""
    SEQUENCE: Final = 11
    """(epoch + 1) << 32 | base sequence; 0 before the first drain; stored after PRODUCER_ID; void if either is not that
    of the partition any more"""
    BASE_OFFSET: Final = 12
    """result: base offset + 1"""
    RESULT: Final = 13
    """result: log append time + 1 << 16 | error code; with an error, number of its incident << 16 | error code. Before
    there is a result: number of the incident that ended the last attempt << 16"""
    NEXT: Final = 14
    """index: slot + 1 behind it in the deque, or 0"""
    PREVIOUS: Final = 15
    """index: slot + 1 before it in the deque, or 0"""
    MAX_RECORD: Final = 16
    """bytes in the largest record: a statistic"""
    DRAINED_MS: Final = 17
    """monotonic milliseconds of the last drain: a statistic"""
    SETTLED: Final = 18
    """records skipped << 24 | records settled: settled are the first ones, whose outcome has been told; skipped are
    those of them that took no sequence number, because they were never stored. The next record has the base sequence
    + settled - skipped"""
    SEALING: Final = 19
    """monotonic milliseconds when the producer that closed it began to compress it; 0 if none does, and outside of
    a deque"""
    COMPRESSED: Final = 20
    """bytes as they are in the slot << 8 | compression; 0: as COMMIT says, and the sender may compress them"""
    REDO: Final = 21
    """what COMPRESSED is to be once the stripe's redo area has been copied here; 0 when that is done"""
    PIECE: Final = 22
    """end of the part that the result words are of << 24 | end of the piece being sent, in records; 0 while the batch
    is sent as a whole; a piece begins where the settled records end, and is in here before it is sent"""
    CHAIN: Final = 23
    """next slot + 1 in the chain of a batch of several slots, 0 in the last one; counts only where a slot that is not
    FREE leads to it. The slots behind the first are FREE by their own headers"""
    LINGER: Final = 24
    """linger.ms << 8 | compression: those of the producer that opened it, compression as in COMPRESSED; linger.ms is
    lowered by each that appends to it and waits for less, under the partition's lock"""
    CONTRIBUTORS: Final = 25
    """bitmap of the process entries that appended to it, one bit each"""


class Waiter:
    """Words of a ticket's cell in the waiter queue."""

    HOLDER: Final = 0
    """who waits, until when, and how it looks (`shmaccum.pool.waiters`); 0 once it has left. Stored after SLOTS"""
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
    """first record << 32 | number of records; 0 records for all that follow, and so 0 for the whole batch"""


STATE_MASK: Final = 0xFF
OWNER_SHIFT: Final = 8
OWNER_MASK: Final = 0xFFFF
SLOTS_SHIFT: Final = 24
SLOTS_MASK: Final = (1 << 24) - 1
INCARNATION_SHIFT: Final = 48
"""The low 16 bits of an owner's incarnation tell it from the next process in the same entry."""
COMMIT_SIZE_SHIFT: Final = 25
COMMIT_COUNT_MASK: Final = (1 << 24) - 1
"""After a shift right by one: the record count. A slot holds fewer records than this says."""
PROGRESS_SHIFT: Final = 24
PROGRESS_MASK: Final = (1 << PROGRESS_SHIFT) - 1
"""Each half of the words SETTLED and PIECE."""
RANGE_SHIFT: Final = 32
RANGE_MASK: Final = (1 << RANGE_SHIFT) - 1
ATTEMPTS_SHIFT: Final = 48
LINGER_SHIFT: Final = 8
MAX_LINGER_MS: Final = (1 << 48) - 1
LIMITS_SHIFT: Final = 32
LIMITS_MASK: Final = (1 << LIMITS_SHIFT) - 1
RENEWALS_SHIFT: Final = 48
TIME_MASK: Final = (1 << ATTEMPTS_SHIFT) - 1
COMPRESSED_SIZE_SHIFT: Final = 8
COMPRESSION_MASK: Final = (1 << COMPRESSED_SIZE_SHIFT) - 1
BATCH_SLOT_BITS: Final = 24
BATCH_SLOT_MASK: Final = (1 << BATCH_SLOT_BITS) - 1
MAX_SLOTS: Final = SLOTS_MASK
"""One less than the numbers that a batch has for its slot: all of them can be one chain."""
MAX_PROCESSES: Final = 1024

LOCK_POOL: Final = 0
"""Guards the bitmap, the waiters, and every step of a slot from or to FREE."""
LOCK_TABLES: Final = 1
"""Guards the topic table and the partition table."""
LOCK_STRIPES: Final = 2
"""First of the stripes: partition entry p's deque is guarded by lock LOCK_STRIPES + p % STRIPES, and so is the stripe's
redo area."""
STRIPES: Final = 16
LOCK_COUNT: Final = LOCK_STRIPES + STRIPES

SUPER_WORDS: Final = 64
TOKEN_WORDS: Final = 2
SETTINGS_SIZE: Final = 16384
"""Bytes in each copy of the settings: a word that says how many the text has and its CRC-32, then the text."""
LOCK_WORDS: Final = CACHE_LINE // WORD
PROCESS_WORDS: Final = 72
TOPIC_WORDS: Final = 40
PARTITION_WORDS: Final = 16
WAITER_WORDS: Final = 2
COMPLETION_WORDS: Final = 4
SLEEP_BITS: Final = 16
MAX_SLEEP_MS: Final = (1 << SLEEP_BITS) - 1
"""The low bits of the word SENDER_RAN."""
INCIDENT_WORDS: Final = 64
INCIDENTS: Final = 32
"""Incidents that are remembered; the entry behind them says where the sender's log is."""
PIECES_IN_FLIGHT: Final = 64
"""Parts of split batches that can be on their way at once, over all partitions: every ring has room for what becomes of
them."""
NEARLY_FULL: Final = 0.9
"""Part of the topic or the partition table in use from which on the log and ``shmaccum status`` warn."""
WAITERS: Final = 1024
"""Tickets that can be out at once: threads of all processes that wait for memory."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes that fix a slab's layout. Two slabs of equal geometry are laid out alike.

    Attributes:
        slot_size: bytes in a slot, a positive multiple of 8.
        slot_count: slots.
        max_processes, max_topics, max_partitions: entries in the tables.
        redo_size: bytes in a stripe's redo area, a multiple of 8.
        ring_length: completions that a ring holds: between two of a producer's appends every slot can complete once,
            and one piece of a batch more for each that is in flight.
        contributor_words: words of the contributors' bitmap in a slot header.
        slot_words: words in a slot header, a whole number of cache lines.
        bitmap_size: bytes in the bitmap, whole words.
        settings, locks, processes, topics, partitions, incidents, waiters, rings, bitmap, headers, redo, slots: byte
            offsets of the regions.
        total_size: bytes in the whole segment.
    """

    slot_size: int
    slot_count: int
    max_processes: int = 128
    max_topics: int = 512
    max_partitions: int = 4096
    redo_size: int = 0

    ring_length: int = field(init=False, repr=False, compare=False)
    contributor_words: int = field(init=False, repr=False, compare=False)
    slot_words: int = field(init=False, repr=False, compare=False)
    bitmap_size: int = field(init=False, repr=False, compare=False)
    settings: int = field(init=False, repr=False, compare=False)
    locks: int = field(init=False, repr=False, compare=False)
    processes: int = field(init=False, repr=False, compare=False)
    topics: int = field(init=False, repr=False, compare=False)
    partitions: int = field(init=False, repr=False, compare=False)
    incidents: int = field(init=False, repr=False, compare=False)
    waiters: int = field(init=False, repr=False, compare=False)
    rings: int = field(init=False, repr=False, compare=False)
    bitmap: int = field(init=False, repr=False, compare=False)
    headers: int = field(init=False, repr=False, compare=False)
    redo: int = field(init=False, repr=False, compare=False)
    slots: int = field(init=False, repr=False, compare=False)
    total_size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.slot_size <= 0 or self.slot_size % WORD:
            raise ValueError(f"slot_size must be a positive multiple of {WORD}, not {self.slot_size}")
        if not 0 < self.slot_count <= MAX_SLOTS:
            raise ValueError(f"slot_count must be between 1 and {MAX_SLOTS}, not {self.slot_count}")
        if not 0 < self.max_processes <= MAX_PROCESSES:
            raise ValueError(f"max_processes must be between 1 and {MAX_PROCESSES}, not {self.max_processes}")
        if self.max_topics <= 0 or self.max_partitions <= 0:
            raise ValueError(
                f"max_topics and max_partitions must be positive, not {self.max_topics} and {self.max_partitions}"
            )
        if self.redo_size < 0 or self.redo_size % WORD:
            raise ValueError(f"redo_size must be a multiple of {WORD}, not {self.redo_size}")
        contributor_words = -(-self.max_processes // 64)
        sizes = {
            "ring_length": self.slot_count + PIECES_IN_FLIGHT,
            "contributor_words": contributor_words,
            "slot_words": _round_up((Slot.CONTRIBUTORS + contributor_words) * WORD, CACHE_LINE) // WORD,
            "bitmap_size": -(-self.slot_count // 64) * WORD,
        }
        # The regions, each behind the one before it.
        regions = {
            "settings": SUPER_WORDS * WORD,
            "locks": 2 * SETTINGS_SIZE,
            "processes": LOCK_COUNT * LOCK_WORDS * WORD,
            "topics": self.max_processes * PROCESS_WORDS * WORD,
            "partitions": self.max_topics * TOPIC_WORDS * WORD,
            "incidents": self.max_partitions * PARTITION_WORDS * WORD,
            "waiters": (INCIDENTS + 1) * INCIDENT_WORDS * WORD,
            "rings": WAITERS * WAITER_WORDS * WORD,
            "bitmap": self.max_processes * sizes["ring_length"] * COMPLETION_WORDS * WORD,
            "headers": sizes["bitmap_size"],
            "redo": self.slot_count * sizes["slot_words"] * WORD,
            "slots": STRIPES * self.redo_size,
            "total_size": self.slot_count * self.slot_size,
        }
        end = 0
        for name, size_before in regions.items():
            end = _round_up(end + size_before, PAGE if name == "slots" else CACHE_LINE if name != "total_size" else 1)
            sizes[name] = end
        for name, size in sizes.items():
            object.__setattr__(self, name, size)

    # Word indexes of single entries.

    def lock(self, number: int) -> int:
        """Word index of a lock's line."""
        return self.locks // WORD + number * LOCK_WORDS

    def process(self, entry: int) -> int:
        """Word index of a process entry."""
        return self.processes // WORD + entry * PROCESS_WORDS

    def topic(self, entry: int) -> int:
        """Word index of a topic entry."""
        return self.topics // WORD + entry * TOPIC_WORDS

    def partition(self, entry: int) -> int:
        """Word index of a partition entry."""
        return self.partitions // WORD + entry * PARTITION_WORDS

    def incident(self, number: int) -> int:
        """Word index of an incident, by its number; a later one takes its place."""
        return self.incidents // WORD + number % INCIDENTS * INCIDENT_WORDS

    def sender_log(self) -> int:
        """Word index of the entry, laid out as an incident, whose text says where the sender's log is."""
        return self.incidents // WORD + INCIDENTS * INCIDENT_WORDS

    def ring(self, entry: int) -> int:
        """Word index of a process's completion ring."""
        return self.rings // WORD + entry * self.ring_length * COMPLETION_WORDS

    def waiter(self, cell: int) -> int:
        """Word index of a cell of the waiter queue."""
        return self.waiters // WORD + cell * WAITER_WORDS

    def header(self, slot: int) -> int:
        """Word index of a slot's header."""
        return self.headers // WORD + slot * self.slot_words

    def redo_area(self, partition: int) -> int:
        """Byte offset of the redo area for the deque of a partition entry."""
        return self.redo + partition % STRIPES * self.redo_size

    def slot(self, slot: int) -> int:
        """Byte offset of a slot's memory."""
        return self.slots + slot * self.slot_size


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
