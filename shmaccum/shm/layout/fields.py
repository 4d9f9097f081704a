"""The fields that share a word, and accessors for them.

An accessor takes a word, or an array of words. The core has the same shifts and masks as enums of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from shmaccum.errors import KafkaError, error_for_code

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Word = TypeVar("Word", int, "npt.NDArray[np.uint64]")

STATE_MASK: Final = 0xFF
OWNER_SHIFT: Final = 8
OWNER_MASK: Final = 0xFFFF
INCARNATION_SHIFT: Final = 48
"""The low 16 bits of an owner's incarnation distinguish it from the next process in the same entry."""
COMMIT_SIZE_SHIFT: Final = 25
COMMIT_COUNT_MASK: Final = (1 << 24) - 1
"""After a shift right by one: the record count. A slot holds fewer records than this mask."""
PROGRESS_SHIFT: Final = 24
PROGRESS_MASK: Final = (1 << PROGRESS_SHIFT) - 1
"""Width and mask of each half of the words SETTLED and PART."""
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
KEY_TOPIC_SHIFT: Final = 32
KEY_LANE_SHIFT: Final = 52
KEY_TOPIC_MASK: Final = (1 << KEY_LANE_SHIFT - KEY_TOPIC_SHIFT) - 1
KEY_NUMBER_MASK: Final = (1 << KEY_TOPIC_SHIFT) - 1
"""The fields of a partition's key."""
LANE_ERROR: Final = 1 << 16
"""Set in a lane's ERROR word, because codes of errors without a number of Kafka's are 0 or negative."""
LEASE_SHIFT: Final = 40
LEASE_MASK: Final = (1 << 64 - LEASE_SHIFT) - 1
"""The number of the lease in a lane's GENERATION word, and below it the transactions of that lease that have ended."""
HOLDER_SHIFT: Final = 16
HOLDER_INCARNATION: Final = (1 << 32) - 1
"""The part of an incarnation in a lane's HOLDER word."""
SLEEP_BITS: Final = 16
MAX_SLEEP_MS: Final = (1 << SLEEP_BITS) - 1
"""The low bits of the word SENDER_RAN."""


def lane_error(error_word: int) -> type[KafkaError]:
    """Return the error in a lane's ERROR word, which is not 0."""
    code = error_word & (LANE_ERROR - 1)
    return error_for_code(code - LANE_ERROR if code & LANE_ERROR >> 1 else code)


def holder_word(entry: int, incarnation: int) -> int:
    """Return the HOLDER word of a lane that a process holds, given its entry."""
    return (incarnation & HOLDER_INCARNATION) << HOLDER_SHIFT | entry + 1


def holder_of(holder: int) -> tuple[int, int]:
    """Return the process entry in a lane's HOLDER word, -1 if there is none, and the low bits of its incarnation."""
    return (holder & (1 << HOLDER_SHIFT) - 1) - 1, holder >> HOLDER_SHIFT & HOLDER_INCARNATION


def state_of(state_word: Word) -> Word:
    """Return the `SlotState` in a slot's state word."""
    return _field(state_word, 0, STATE_MASK)


def owner_of(state_word: Word) -> Word:
    """Return the process entry of the owner in a slot's state word."""
    return _field(state_word, OWNER_SHIFT, OWNER_MASK)


def size_of(commit_word: Word) -> Word:
    """Return the committed bytes in a commit word."""
    return _field(commit_word, COMMIT_SIZE_SHIFT, (1 << 64 - COMMIT_SIZE_SHIFT) - 1)


def count_of(commit_word: Word) -> Word:
    """Return the committed records in a commit word."""
    return _field(commit_word, 1, COMMIT_COUNT_MASK)


def _field(word: Word, shift: int, mask: int) -> Word:
    field: Any = word >> shift & mask  # numpy's stubs say that an int makes an array signed
    result: Word = field
    return result
