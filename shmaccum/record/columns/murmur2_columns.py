"""`shmaccum.record.murmur2` for a whole Arrow column of keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum._compiled import COMPILED
from shmaccum.record.columns.arrow import binary_column, nulls_of, offsets_and_data
from shmaccum.record.murmur2 import MASK, MULTIPLIER, POSITIVE, SEED, murmur2

if COMPILED:
    from shmaccum.record.columns.direct import cells_of

UNKNOWN_PARTITION: Final = -1
"""Partition of a null key, which has no hash (``RecordMetadata.UNKNOWN_PARTITION``)."""

_WORD: Final = 4
_FEW: Final = 16
"""Up to this many keys that are longer than all others are hashed one by one, to save numpy calls for each word."""
_MULTIPLIER: Final = np.uint32(MULTIPLIER)


def murmur2_column(array: pa.Array) -> NDArray[np.uint32]:
    """Return the hash of each key: the 32 bits of `murmur2`, unsigned; meaningless for a null key.

    Args:
        array: keys, binary or string of any layout.

    Raises:
        SerializationError: the array is of another type.
    """
    offsets, data = offsets_and_data(binary_column("keys", array))
    if len(array) == 0:
        return np.empty(0, np.uint32)
    sizes = np.diff(offsets)
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    largest = int(sizes.max())
    if largest == sizes.min():
        return _murmur2_of_equal(padded, len(sizes), largest)
    # The narrowest sufficient type: numpy sorts it in one or two passes.
    word_counts = (sizes // _WORD).astype(np.min_scalar_type(largest))
    order = np.argsort(word_counts, kind="stable")[::-1]
    step_count = int(word_counts[order[min(_FEW, len(order) - 1)]])
    digests = np.empty(len(sizes), np.uint32)
    longer = order[word_counts[order] > step_count]
    for row in longer.tolist():
        digests[row] = murmur2(data[offsets[row] : offsets[row + 1]].tobytes()) & MASK
    rows = order[len(longer) :]
    digests[rows] = _murmur2_of_descending(padded, offsets[rows], sizes[rows])
    return digests


def partitions_for_keys(array: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """Return the partition of each key as `partition_for_key` does, and `UNKNOWN_PARTITION` for a null.

    Raises:
        SerializationError: the array is not of binary or string type.
    """
    if COMPILED:
        found = np.empty(len(array), np.int64)
        cells_of("keys", array).partitions(found, partition_count)
        return found
    digests = murmur2_column(array) & np.uint32(POSITIVE)
    partitions = (digests % np.uint32(partition_count)).astype(np.int64)
    if array.null_count:
        partitions[nulls_of(array)] = UNKNOWN_PARTITION
    return partitions


def _murmur2_of_equal(padded: NDArray[np.uint8], count: int, size: int) -> NDArray[np.uint32]:
    """Hash keys of one size, stored back to back; `_WORD` more bytes follow the last one."""

    def words(at: int) -> NDArray[np.uint32]:
        """Return the word of each key that begins at its byte ``at``."""
        return np.ndarray((count,), "<u4", padded, at, (size,))

    digests = np.full(count, SEED ^ size, np.uint32)
    rest = size % _WORD
    for at in range(0, size - rest, _WORD):
        digests = _with_word(digests, words(at))
    if rest:
        digests = (digests ^ words(size - rest) & np.uint32((1 << 8 * rest) - 1)) * _MULTIPLIER
    return _finished(digests)


def _murmur2_of_descending(
    padded: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash keys sorted by descending number of words: in any step, the keys that still have a word come first."""
    words = np.ndarray((len(padded) - _WORD + 1,), "<u4", padded, strides=(1,))  # the word that begins at each byte
    digests = np.uint32(SEED) ^ sizes.astype(np.uint32)
    word_counts = sizes // _WORD
    for step in range(int(word_counts[0])):
        active = int(np.searchsorted(-word_counts, -step))
        digests[:active] = _with_word(digests[:active], words[starts[:active] + step * _WORD])
    rest_bits = (sizes % _WORD * 8).astype(np.uint32)
    rest = words[starts + word_counts * _WORD] & ((np.uint32(1) << rest_bits) - np.uint32(1))
    return _finished(np.where(rest_bits > 0, (digests ^ rest) * _MULTIPLIER, digests))


def _with_word(digests: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    words = words * _MULTIPLIER
    words = (words ^ words >> np.uint32(24)) * _MULTIPLIER
    return digests * _MULTIPLIER ^ words


def _finished(digests: NDArray[np.uint32]) -> NDArray[np.uint32]:
    digests = (digests ^ digests >> np.uint32(13)) * _MULTIPLIER
    return digests ^ digests >> np.uint32(15)
