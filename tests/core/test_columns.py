"""What C does with memory that is not what it is said to be; what it does otherwise, `test_columns` shows."""

from __future__ import annotations

import numpy as np
import pytest

from shmaccum._core import Bodies, Cells, Rows
from shmaccum.errors import SerializationError

OFFSETS = np.array([0, 3, 6, 9], np.int32)


def bodies(sizes: int = 3, timestamps: int = 1, timestamp: int = 0) -> Bodies:
    cells = Cells(3, 0, 4, 0, None, OFFSETS, b"abcabcabc")
    return Bodies(2, None, cells, None, np.empty(sizes, np.int64), np.full(timestamps, timestamp))


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


def test_rows_that_there_are_not() -> None:
    assert Rows(bodies(), None, 3, 3).left == 0
    assert Rows(bodies(2), np.zeros(9, np.int64), 4, 9).left == 5
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(IndexError, match="no rows"):
            Rows(bodies(), None, start, stop)
    with pytest.raises(SerializationError, match="row 3"):
        bodies(4)
    for timestamps in (0, 2, 4):
        with pytest.raises(IndexError, match=f"{timestamps} timestamps of 3"):
            bodies(3, timestamps)
    for number in (-1, 3, 1 << 62):
        with pytest.raises(SerializationError, match="changed"):
            Rows(bodies(), np.array([number]), 0, 1).next_record()
    for rows in (Rows(bodies(), None, 3, 3), Rows(bodies(timestamp=-1), None, 0, 3)):
        with pytest.raises(SerializationError, match="changed"):
            rows.next_record()
