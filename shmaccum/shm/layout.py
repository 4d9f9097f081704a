"""The slab's memory layout, for Python code: what the words of an entry hold.

``core/layout.pxi`` describes the layout, and the core gives the numbers of its words. Here are the values of states,
what follows from those numbers, and accessors for fields that share a word. An accessor takes a word, or an array.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shmaccum import _core
from shmaccum._core import KEY_LANE_SHIFT, KEY_TOPIC_SHIFT, WORD, Broker, Lane, Process
from shmaccum.errors import KafkaError, error_for_code

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Word = TypeVar("Word", int, "npt.NDArray[np.uint64]")

MAGIC: Final = int.from_bytes(b"SHMACCUM", "little")

PROCESS_COUNTERS: Final = Process.COMPRESSED - Process.RECORDS + 1
MAX_PROCESS_NAME: Final = (Process.BEFORE - Process.NAME) * WORD
"""Most bytes of a process's name; longer ones are cut."""
MAX_TRANSACTIONAL_ID: Final = (Lane.length - Lane.ID) * WORD
"""Most bytes of a transactional id."""
MAX_ADDRESS: Final = (Broker.length - Broker.ADDRESS) * WORD
"""Most bytes of a broker's address; longer ones are cut."""
NEARLY_FULL: Final = 0.9
"""Used fraction of the topic or partition table from which the log and ``shmaccum status`` warn."""

PROGRESS_MASK: Final = (1 << _core.PROGRESS_SHIFT) - 1
"""Of each half of the words COMPLETED and PART."""
MAX_LINGER_MS: Final = (1 << 48) - 1
LIMITS_MASK: Final = (1 << _core.LIMITS_SHIFT) - 1
TIME_MASK: Final = (1 << _core.ATTEMPTS_SHIFT) - 1
BATCH_SLOT_MASK: Final = (1 << _core.BATCH_SLOT_BITS) - 1
KEY_TOPIC_MASK: Final = (1 << KEY_LANE_SHIFT - KEY_TOPIC_SHIFT) - 1
KEY_NUMBER_MASK: Final = (1 << KEY_TOPIC_SHIFT) - 1
HOLDER_INCARNATION: Final = (1 << 32) - 1
"""The part of an incarnation in a lane's HOLDER word."""
MAX_SLEEP_MS: Final = (1 << _core.SLEEP_BITS) - 1


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


class Role(IntFlag):
    """Bits of `Process.ROLES`."""

    PRODUCER = 1
    SENDER = 2


class BrokerState(IntEnum):
    """A broker's state, as the sender sees it."""

    UNUSED = 0
    """There is no such broker entry."""
    IDLE = 1
    """There is no connection, and none is being opened."""
    CONNECTING = 2
    """A connection is being opened."""
    READY = 3
    """A connection is open."""
    FAILED = 4
    """The last attempt failed, or the connection broke; there will be another attempt."""


class OfSender(IntEnum):
    """The histograms of the sender, about batches that are acknowledged."""

    QUEUE_TIME = 0
    """Microseconds from a batch's first record to its first drain."""
    DELIVERY_TIME = 1
    """Microseconds from a batch's first record to its acknowledgement."""
    BATCH_RECORDS = 2
    """Records in a batch."""
    BATCH_FILL = 3
    """Thousandths of its slots that a batch fills, uncompressed."""
    COMPRESSION = 4
    """Thousandths of its size to which a batch was compressed; not of batches that were not to be compressed."""


class OfProcess(IntEnum):
    """The histograms of a process."""

    MEMORY_WAIT = 0
    """Microseconds of a wait for memory."""
    RECORD_SIZE = 1
    """Bytes of a record, as in its batch."""


CODE_MASK: Final = 0xFFFF
"""The part of a word that has the code of an error, or 0 for none."""


def error_of(word: int) -> type[KafkaError] | None:
    """Return the error whose code is in the low 16 bits of a word, None for 0."""
    code = word & CODE_MASK
    return error_for_code(code - 0x10000 if code & 0x8000 else code) if code else None


def lane_error(error_word: int) -> type[KafkaError]:
    """Return the error in a lane's ERROR word, which is not 0."""
    code = error_word & (_core.LANE_ERROR - 1)
    return error_for_code(code - _core.LANE_ERROR if code & _core.LANE_ERROR >> 1 else code)


def holder_word(entry: int, incarnation: int) -> int:
    """Return the HOLDER word of a lane that a process holds, given its entry."""
    return (incarnation & HOLDER_INCARNATION) << _core.HOLDER_SHIFT | entry + 1


def holder_of(holder: int) -> tuple[int, int]:
    """Return the process entry in a lane's HOLDER word, -1 if there is none, and the low bits of its incarnation."""
    return (holder & (1 << _core.HOLDER_SHIFT) - 1) - 1, holder >> _core.HOLDER_SHIFT & HOLDER_INCARNATION


def state_of(state_word: Word) -> Word:
    """Return the `SlotState` in a slot's state word."""
    return _field(state_word, 0, _core.STATE_MASK)


def owner_of(state_word: Word) -> Word:
    """Return the process entry of the owner in a slot's state word."""
    return _field(state_word, _core.OWNER_SHIFT, _core.OWNER_MASK)


def size_of(commit_word: Word) -> Word:
    """Return the committed bytes in a commit word."""
    return _field(commit_word, _core.COMMIT_SIZE_SHIFT, (1 << 64 - _core.COMMIT_SIZE_SHIFT) - 1)


def count_of(commit_word: Word) -> Word:
    """Return the committed records in a commit word."""
    return _field(commit_word, 1, _core.COMMIT_COUNT_MASK)


def _field(word: Word, shift: int, mask: int) -> Word:
    field: Any = word >> shift & mask  # numpy's stubs say that an int makes an array signed
    result: Word = field
    return result


def column_of(words: memoryview, start: int, rows: int, width: int) -> list[int]:
    """Return one word of each entry of a table; without numpy, which a process that only sends does not import.

    ``start`` is the index of that word in the first entry; an entry has ``width`` words.
    """
    return words[start : start + rows * width : width].tolist()
