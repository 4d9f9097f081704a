"""The demo's check: compares a topic's records with those that were sent.

It reads a log with kafka-python's decoder, not with ours. Each problem becomes a line of text; no line means success.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_EXAMPLES: Final = 3


@dataclass(slots=True)
class TopicContents:
    """What a reader found in a topic: the values of each key, in the order of their offsets, and problems."""

    values: dict[bytes | None, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    records: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, where: str, offset: int, expected_offset: int, key: bytes | None, value: bytes | None) -> None:
        """Add the next record of a partition."""
        if offset != expected_offset:
            self.problems.append(f"{where}: offset {offset} instead of {expected_offset}")
        self.records += 1
        self.values[key].append(value)


def read_topic(log_dir: Path, topic: str) -> TopicContents:
    """Read all partitions of a topic: check every CRC, and that offsets are consecutive from 0."""
    contents = TopicContents()
    for partition in sorted(log_dir.glob(f"{topic}-*")):
        offset = 0
        for segment in sorted(partition.glob("*.log")):
            offset = _read_segment(segment, offset, contents)
    return contents


def _read_segment(segment: Path, offset: int, contents: TopicContents) -> int:
    """Read a segment that should begin at ``offset``; return the offset after its last."""
    from kafka.record import MemoryRecords

    data = segment.read_bytes()
    log = MemoryRecords(data)
    while (batch := log.next_batch()) is not None:
        if not batch.validate_crc():
            contents.problems.append(f"{segment}: the CRC of the batch at offset {batch.base_offset} is wrong")
        for record in batch:
            contents.add(str(segment), record.offset, offset, record.key, record.value)
            offset = record.offset + 1
    if log.valid_bytes() != len(data):
        contents.problems.append(f"{segment}: {len(data) - log.valid_bytes()} bytes at its end are not a whole batch")
    return offset


def compare(
    expected: Mapping[bytes, Sequence[str]],
    found: Mapping[bytes | None, Sequence[bytes | None]],
    spelled: Callable[[bytes], str],
) -> list[str]:
    """Compare the values of each key, in order, with its source; return the problems.

    ``spelled`` converts a value to the spelling of ``expected``.
    """
    missing: list[str] = []
    unexpected: list[str] = []
    disordered: list[str] = []
    for key in expected.keys() | found.keys():
        wanted = list(expected.get(key, ())) if key is not None else []
        got = ["null" if value is None else spelled(value) for value in found.get(key, ())]
        if got == wanted:
            continue
        shown = "null" if key is None else key.decode(errors="backslashreplace")
        lost, added = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
        missing += (f"{shown}: {value}" for value in lost.elements())
        unexpected += (f"{shown}: {value}" for value in added.elements())
        if not lost and not added:
            disordered.append(shown)
    return [
        f"{len(cases)} {what}, such as: "
        + "; ".join(case if len(case) <= 100 else f"{case[:100]}..." for case in sorted(cases)[:_EXAMPLES])
        for what, cases in (
            ("records missing", missing),
            ("records not sent, or there more than once", unexpected),
            ("keys with their records in another order", disordered),
        )
        if cases
    ]
