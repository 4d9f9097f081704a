"""What C does with memory that is not what it is said to be; what it does otherwise, `test_columns` shows."""

from __future__ import annotations

import numpy as np
import pytest

from shmaccum._core import COMMIT_COUNT_MASK, Bodies, Cells, RowBatches, Rows
from shmaccum.errors import SerializationError

OFFSETS = np.array([0, 3, 6, 9], np.int32)


def batches(count: int = 3) -> RowBatches:
    records = Bodies(2, None, Cells(3, 0, 4, 0, None, OFFSETS, b"abcabcabc"), None)
    ready = RowBatches(Rows(records, np.arange(count), np.full(count, 6), np.zeros(count, np.int64)))
    assert ready.lay_out(0, 100, 1) == count
    return ready


@pytest.mark.parametrize(
    "shape",
    [
        *[(4, 0, 4, 0, None, OFFSETS, b""), (3, 1, 4, 0, None, OFFSETS, b""), (2, 0, 8, 0, None, OFFSETS, b"")],
        *[(9, 0, 0, 0, b"\xff", None, None), (8, 1, 0, 0, b"\xff", None, None)],
        (3, 1, 0, 3, None, None, b"abcabc"),
    ],
)
def test_offsets_bits_and_bytes_are_all_there(shape: tuple) -> None:
    with pytest.raises(SerializationError, match="too short"):
        Cells(*shape)


@pytest.mark.parametrize("shape", [(-1, 0, 4, 0), (1, -1, 4, 0), (1, 0, 3, 0), (1, 0, 0, -1), (1 << 50, 0, 4, 0)])
def test_shapes_that_no_column_has(shape: tuple) -> None:
    with pytest.raises(ValueError, match="no column has"):
        Cells(*shape, None, OFFSETS, b"abc")


def test_nothing_is_written_behind_the_memory_and_no_more_than_was_measured() -> None:
    ready = batches()
    memory = memoryview(bytearray(100))
    for place in (-1, 80, 100, 1 << 60):
        with pytest.raises(IndexError):
            ready.write(memory, [place])
        assert not any(memory)
    ready.sizes[0] -= 1
    with pytest.raises(SerializationError, match="changed"):
        ready.write(memory, [0])
    assert not any(memory[ready.sizes[0] :])


def test_rows_and_batches_that_there_are_not() -> None:
    ready = batches()
    with pytest.raises(IndexError):
        ready.records(1)
    with pytest.raises(IndexError):
        ready.write(memoryview(bytearray(100)), [0, 50])
    with pytest.raises(SerializationError, match="row 3"):
        batches(4).records(0)
    with pytest.raises(ValueError, match="without bodies"):
        RowBatches(Rows.__new__(Rows))
    for lengths in ((2, 3, 3), (3, 2, 3), (3, 3, 2)):
        with pytest.raises(IndexError, match="2"):
            Rows(Bodies(2, None, None, None), *(np.zeros(length, np.int64) for length in lengths))


@pytest.mark.parametrize("left", [0, 2])
def test_a_batch_takes_no_more_records_than_its_word_counts(left: int) -> None:
    assert batches().add_to(100, COMMIT_COUNT_MASK - left, 0) == left
