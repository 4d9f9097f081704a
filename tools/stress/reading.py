"""What is in the log, read by kafka-python, which shares no code with us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.stress.options import TOPICS


class Stored(NamedTuple):
    """A record as it was found."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def read_log(log_dir: Path, problems: list[str], topics: tuple[str, ...] = TOPICS) -> Iterator[Stored]:
    """Yield all records of these topics in a log, partition by partition, in the order of their offsets.

    What is wrong with a log as such is added to ``problems``: a batch whose CRC is wrong (its records are not
    yielded), offsets that do not follow each other from 0 on, bytes that are no whole batch.
    """
    for topic in topics:
        for directory in sorted(log_dir.glob(f"{topic}-*")):
            partition = int(directory.name.rpartition("-")[2])
            expected = 0
            for segment in sorted(directory.glob("*.log")):
                for record in _read_segment(segment, problems):
                    if record.offset != expected:
                        problems.append(f"{segment}: offset {record.offset} where {expected} was to come")
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
        problems.append(f"{segment}: {len(data) - log.valid_bytes()} bytes at its end are no whole batch")
