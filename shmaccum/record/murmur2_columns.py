"""`shmaccum.record.murmur2` of a whole Arrow column of keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum.record.columns import binary_column, offsets_and_data
from shmaccum.record.murmur2 import MASK, MULTIPLIER, POSITIVE, SEED, murmur2

UNKNOWN_PARTITION: Final = -1
"""Stands for the partition of a null key, which its hash does not decide (``RecordMetadata.UNKNOWN_PARTITION``)."""

_WORD: Final = 4
_FEW: Final = 16
"""So many keys, much longer than all others, are hashed one by one rather than by numpy calls for each word."""


def murmur2_column(array: pa.Array) -> NDArray[np.uint32]:
    """Return the hash of each key: the 32 bits of `murmur2`, unsigned. That of a null key means nothing.

    Args:
        array: keys, binary or string of any layout.

    Raises:
        SerializationError: the array is of another type.
    """
    offsets, data = offsets_and_data(binary_column("keys", array))
    if len(array) == 0:
        return np.empty(0, np.uint32)
    sizes = np.diff(offsets)
    order = np.argsort(-sizes, kind="stable")
    step_count = int(sizes[order[min(_FEW, len(order) - 1)]]) // _WORD
    digests = np.empty(len(sizes), np.uint32)
    longer = order[sizes[order] // _WORD > step_count]
    for row in longer.tolist():
        digests[row] = murmur2(data[offsets[row] : offsets[row + 1]].tobytes()) & MASK
    rows = order[len(longer) :]
    digests[rows] = _murmur2_of_descending(data, offsets[rows], sizes[rows])
    return digests


def partitions_for_keys(array: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """Return the partition of each key as `partition_for_key` does, and `UNKNOWN_PARTITION` for a null.

    Raises:
        SerializationError: the array is not of binary or string type.
    """
    partitions = (murmur2_column(array) & np.uint32(POSITIVE)).astype(np.int64) % partition_count
    partitions[array.is_null().to_numpy(zero_copy_only=False)] = UNKNOWN_PARTITION
    return partitions


def _murmur2_of_descending(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash keys that come longest first: those that still have a word at any step are the first ones."""
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words = np.ndarray((len(data) + 1,), "<u4", padded, strides=(1,))  # the word that begins at each byte
    multiplier = np.uint32(MULTIPLIER)
    digests = np.uint32(SEED) ^ sizes.astype(np.uint32)
    word_counts = sizes // _WORD
    for step in range(int(word_counts[0])):
        active = int(np.searchsorted(-word_counts, -step))
        word = words[starts[:active] + step * _WORD] * multiplier
        word = (word ^ word >> np.uint32(24)) * multiplier
        digests[:active] = digests[:active] * multiplier ^ word
    rest_bits = (sizes % _WORD * 8).astype(np.uint32)
    rest = words[starts + word_counts * _WORD] & ((np.uint32(1) << rest_bits) - np.uint32(1))
    digests = np.where(rest_bits > 0, (digests ^ rest) * multiplier, digests)
    digests = (digests ^ digests >> np.uint32(13)) * multiplier
    return digests ^ digests >> np.uint32(15)
