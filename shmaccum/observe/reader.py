"""Reads the metrics of all slabs of a host at one time, for whatever exports them.

A slab that cannot be read is left out and counted. A slab that is removed meanwhile is left out.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shmaccum.abi import shard_of
from shmaccum.errors import SlabError, SlabNotFoundError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Metric, Series, Value, series_of
from shmaccum.observe.report import SlabReport, report
from shmaccum.shm import names

_UNREADABLE: Final = ("SlabAbiError", "SlabDamagedError", "SlabPermissionError")
"""Classes of errors that always have a series, so that it is there before the first error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All slabs at one time: the metrics of each that was read, and how many were left out, by the class of the error.

    ``seconds`` is how long it took to read them; ``partitions`` whether topics have a series for each partition.
    """

    slabs: Mapping[str, Mapping[Metric, Series]]
    unreadable: Mapping[str, int]
    seconds: float
    partitions: bool

    def values(self, metric: Metric) -> Iterator[tuple[dict[str, str], Value]]:
        """Yield the labels and the value of each series of a metric."""
        if metric is catalogue.SLABS:
            yield {}, len(self.slabs)
        elif metric is catalogue.READ_SECONDS:
            yield {}, self.seconds
        elif metric is catalogue.UNREADABLE_SLABS:
            yield from (({"error": error}, number) for error, number in sorted(self.unreadable.items()))
        else:
            is_by_partition = self.partitions and metric in catalogue.BY_TOPIC
            labels = (*metric.labels, "partition") if is_by_partition else metric.labels
            for slab, series in self.slabs.items():
                of_slab = labels_of(slab)
                for values, value in series[metric].items():
                    yield {**of_slab, **dict(zip(labels, values, strict=True))}, value


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of a slab's metrics: ``slab``, its name, and ``shard`` if it is one of several."""
    base, shard = shard_of(name)
    return {"slab": base} if shard is None else {"slab": base, "shard": str(shard)}


class SlabReader:
    """Reads the metrics of slabs, again and again; by default all of this host. Several threads can read at once.

    A name stands for all of its shards. Slabs of other users count as unreadable, unless this process is root's.
    ``partitions``: whether the metrics of topics have a series for each partition.
    """

    def __init__(self, slabs: Sequence[str] | None = None, *, partitions: bool = False) -> None:
        self._partitions = partitions
        self._slabs: Callable[[], Sequence[str]] = (
            names.slab_names if slabs is None else lambda: [each for name in slabs for each in names.slabs_of(name)]
        )
        self._errors = _ErrorTotals()

    def snapshot(self) -> Snapshot:
        """Read all slabs."""
        began = time.perf_counter()
        slabs: dict[str, Mapping[Metric, Series]] = {}
        unreadable = Counter(dict.fromkeys(_UNREADABLE, 0))
        there = self._slabs()
        self._errors.keep(there)
        for name in there:
            try:
                slab = report(name)
            except SlabNotFoundError:
                continue  # removed since the names were listed
            except (SlabError, OSError) as error:
                unreadable[type(error).__name__] += 1
            else:
                series = series_of(slab, by_partition=self._partitions)
                slabs[name] = {**series, catalogue.ERRORS: self._errors.of(slab)}
        return Snapshot(slabs, unreadable, time.perf_counter() - began, self._partitions)


class _ErrorTotals:
    """Counts errors by class, so that no count falls when the slab drops an old error for a new one.

    The slab keeps the last `shmaccum._core.INCIDENTS` distinct errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], tuple[dict[int, int], Counter[str]]] = {}
        """Of each slab, by name and creation: the counts that were seen last, by number, and the totals."""

    def keep(self, there: Iterable[str]) -> None:
        """Forget the slabs that are no longer there."""
        with self._lock:
            names_there = set(there)
            for key in [key for key in self._seen if key[0] not in names_there]:
                del self._seen[key]

    def of(self, slab: SlabReport) -> Series:
        """Return the totals of a slab, with this report."""
        with self._lock:
            seen, totals = self._seen.setdefault((slab.name, slab.created_ms), ({}, Counter()))
            kept = {each.number: each for each in slab.incidents}
            for number, incident in kept.items():
                if incident.count > seen.get(number, 0):
                    totals[incident.error.__name__] += incident.count - seen.get(number, 0)
                    seen[number] = incident.count
            newest = max(kept, default=0)
            for number in [number for number in seen if number < newest and number not in kept]:
                del seen[number]  # dropped: a number is never used again
            return {(error,): count for error, count in sorted(totals.items())}
