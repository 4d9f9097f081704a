"""What became of one run of a job, and how two of them differ."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tools.moved_by_one_word.job import Job, Order
from tools.moved_by_one_word.reading import Found, Record

_BY_A_SINK: Final = re.compile(r"(?:shmaccum\.errors|org\.apache\.kafka(?:\.\w+)+)\.(\w+(?:Error|Exception)): (.*)")
"""An error of a sink in the text of Spark's: ours, or one of Kafka's."""
_BY_JAVA: Final = re.compile(r"^: [\w.]+\.(\w+): (.*)", re.MULTILINE)
"""What py4j names in its second line."""
_BY_A_QUERY: Final = re.compile(r"^\[STREAM_FAILED\] .* terminated with exception: (.*)")


class Refusal(NamedTuple):
    """An error that ended a job.

    Attributes:
        raised: class of the exception that pyspark raised.
        kind: class of the sink's own error, or of Java's, if Spark has wrapped one; else as `raised`.
        text: its first line.
    """

    raised: str
    kind: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Return what to say of an exception that pyspark raised."""
        raised, whole = type(error).__name__, str(error).strip()
        found = _BY_A_SINK.search(whole) or _BY_JAVA.search(whole)
        if found is not None:
            return cls(raised, found[1], found[2].strip())
        found = _BY_A_QUERY.match(whole)
        return cls(raised, raised, whole.splitlines()[0] if found is None else found[1].strip())

    def is_like(self, other: Refusal) -> bool:
        """Return whether a job that handles this error handles the other one, but for what Java and Python call it."""
        return _stem(self.kind) == _stem(other.kind) or (self.raised == self.kind == other.raised)


def _stem(kind: str) -> str:
    return re.sub(r"(Error|Exception)$", "", kind).removeprefix("Kafka")


@dataclass(frozen=True)
class Outcome:
    """What became of one run of a job.

    Attributes:
        found: what is in each of its topics.
        refusal: what ended it, or None.
        duplicates: records that are there more often than wanted.
        lost: records that are missing.
    """

    found: tuple[Found, ...]
    refusal: Refusal | None
    duplicates: int
    lost: int

    @property
    def records(self) -> list[Record]:
        """All that was found."""
        return [record for found in self.found for records in found.values() for record in records]


def outcome_of(job: Job, found: Sequence[Found], error: Exception | None) -> Outcome:
    """Return what became of a run.

    Args:
        job: the job.
        found: in each of its topics.
        error: what ended it, or None.
    """
    there = Counter(record.value for topic in found for records in topic.values() for record in records)
    wanted = Counter(job.values)
    return Outcome(
        tuple(found), None if error is None else Refusal.of(error), (there - wanted).total(), (wanted - there).total()
    )


def differences(job: Job, kafka: Outcome, ours: Outcome) -> list[str]:
    """Return what is different after ``format("shmaccum")``; nothing if all is the same."""
    if kafka.refusal is not None and ours.refusal is not None:
        same = kafka.refusal.is_like(ours.refusal)
        different = [] if same else [f"{kafka.refusal.kind} / {ours.refusal.kind}"]
    elif kafka.refusal is not None or ours.refusal is not None:
        return ["only shmaccum refuses" if kafka.refusal is None else "only kafka refuses"]
    else:
        different = []
    for kind in ("duplicates", "lost"):
        if getattr(kafka, kind) != getattr(ours, kind):
            different.append(f"{kind}: {getattr(kafka, kind)} / {getattr(ours, kind)}")
    for number, (theirs, mine) in enumerate(zip(kafka.found, ours.found, strict=True)):
        if _view(job, theirs) != _view(job, mine):
            different.append(f"other records in topic {number + 1}")
    return different


def _view(job: Job, found: Found) -> Any:
    """Return of a topic what must be the same."""
    if job.order is Order.PARTITION:
        return found
    if job.order is Order.KEY:
        of_keys: dict[tuple[int, bytes | None], list[Record]] = defaultdict(list)
        for partition, records in found.items():
            for record in records:
                of_keys[partition, record.key].append(record)
        return of_keys
    if job.placed:
        return {partition: Counter(records) for partition, records in found.items()}
    return Counter(record for records in found.values() for record in records)
