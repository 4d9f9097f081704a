"""Reads the log with kafka-python, which shares no code with us."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Stored(NamedTuple):
    """A record in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def read_log(log_dir: Path, problems: list[str], topics: Iterable[str]) -> Iterator[Stored]:
    """Yield all records of these topics in a log, partition by partition, in the order of their offsets.

    Problems of a log itself are added to ``problems``: wrong CRCs, offsets that are not consecutive from 0, bytes that
    are not a whole batch. The records of a batch with a wrong CRC are not yielded.
    """
    for topic in topics:
        for directory in sorted(log_dir.glob(f"{topic}-*")):
            partition = int(directory.name.rpartition("-")[2])
            expected = 0
            for segment in sorted(directory.glob("*.log")):
                for record in _read_segment(segment, problems):
                    if record.offset != expected:
                        problems.append(f"{segment}: offset {record.offset} instead of {expected}")
                    expected = record.offset + 1
                    yield Stored(topic, partition, record.offset, record.key, record.value)


def _read_segment(segment: Path, problems: list[str]):  # type: ignore[no-untyped-def] # kafka-python has no types
    from kafka.record import MemoryRecords

    data = segment.read_bytes()
    log = MemoryRecords(data)
    while (batch := log.next_batch()) is not None:
        if batch.validate_crc():
            yield from batch
        else:
            problems.append(f"{segment}: the CRC of the batch at offset {batch.base_offset} is wrong")
    if log.valid_bytes() != len(data):
        problems.append(f"{segment}: {len(data) - log.valid_bytes()} bytes at its end are not a whole batch")
