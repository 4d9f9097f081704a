"""Futures of a split batch: each record has the outcome of its own part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum._core import Callbacks, FutureRecordMetadata, Part, ProduceRequestResult
from shmaccum.accumulator.append.futures import DeliveryCallback, FutureColumnsMetadata
from shmaccum.accumulator.append.pending_batches import call_back
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.errors import RecordTooLargeError, ShmaccumError
from shmaccum.record.columns import ColumnBodies
from shmaccum.record.format import record_format

COUNT = 12
BODIES = ColumnBodies(record_format(2), None, pa.array([b""] * COUNT), None, 0)


class Nobody:
    """Waits for nothing."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        return condition()

    def call_back(self, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        raise AssertionError


def new_result() -> ProduceRequestResult:
    return ProduceRequestResult(TopicPartition("t", 3), 7, Nobody)


# What becomes of a part: its base offset, or None if it is given up.
outcomes = st.none() | st.integers(-1, 1000)
starts = st.sets(st.integers(1, COUNT - 1)).map(lambda cuts: [0, *sorted(cuts)])


@settings(max_examples=50)
@given(starts, st.lists(outcomes, min_size=COUNT, max_size=COUNT), st.integers(0, COUNT))
def test_each_record_has_the_outcome_of_its_part(cuts: list[int], base_offsets: list[int | None], told: int) -> None:
    """However a batch is cut, and after any number of parts: by records, by callbacks and by columns."""
    result = new_result()
    called: list[tuple[int, ShmaccumError | None, RecordMetadata | None]] = []
    futures = [FutureRecordMetadata(result, index, 100 + index) for index in range(COUNT)]
    callbacks = Callbacks(call_back)
    for index, future in enumerate(futures):
        callbacks.add(7, lambda error, metadata, index=index: called.append((index, error, metadata)), future)
    columns = FutureColumnsMetadata(COUNT, Nobody())
    for start, stop in ((0, COUNT // 2), (COUNT // 2, COUNT)):
        columns.add(rows := BODIES.rows(start, stop))
        for index in range(start, stop):
            rows.note(futures[index])
        assert (rows.results, rows.cuts, rows.firsts) == ([result], [start, stop], [start])
    expected: list[int | None] = []
    parts = list(pairwise([*cuts, COUNT]))[:told]
    told_parts: list[tuple[Part, int]] = []
    for (first, end), base_offset in zip(parts, base_offsets, strict=False):
        failure = RecordTooLargeError if base_offset is None else None
        part = Part(first, -1 if base_offset is None else base_offset, -1, failure)
        told_parts.append((part, 0 if end == COUNT else end - first))
        for each in (*told_parts, *told_parts):  # a sender that takes over may tell again
            result.complete(*each)
            callbacks.make_due(7)
            callbacks.run()
        expected += [
            None if base_offset is None else base_offset + at if base_offset >= 0 else -1 for at in range(end - first)
        ]

    done = len(expected)
    assert [future.is_done for future in futures] == [index < done for index in range(COUNT)]
    assert result.done == columns.is_done == (done == COUNT)
    assert [future.failed() for future in futures[:done]] == [offset is None for offset in expected]
    assert [future.value and future.value.offset for future in futures[:done]] == expected
    assert [index for index, _, _ in called] == list(range(done))
    assert [metadata and metadata.offset for _, _, metadata in called] == expected
    assert (columns.error is not None) == (None in expected)
    if done == COUNT and None not in expected:
        assert columns.get().offsets.tolist() == expected
