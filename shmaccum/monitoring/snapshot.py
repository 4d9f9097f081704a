"""All slabs of a host at one time, for whatever exports their metrics.

A slab that cannot be read is left out and counted. A slab that is removed meanwhile is left out.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shmaccum.abi import shard_of
from shmaccum.errors import SlabError, SlabNotFoundError
from shmaccum.monitoring import catalogue
from shmaccum.monitoring.catalogue import Metric
from shmaccum.monitoring.reading import Series, SlabReading, read_slab
from shmaccum.shm import names

_UNREADABLE: Final = ("SlabAbiError", "SlabDamagedError", "SlabPermissionError")
"""Classes of errors that always have a series, so that it is there before the first error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All slabs at one time.

    Attributes:
        slabs: for each slab that was read, its metrics.
        unreadable: how many were left out, by the class of the error.
        seconds: how long it took to read them.
    """

    slabs: Mapping[str, Mapping[Metric, Series]]
    unreadable: Mapping[str, int]
    seconds: float


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of a slab's metrics: ``slab``, its name, and ``shard`` if it is one of several."""
    base, shard = shard_of(name)
    return {"slab": base} if shard is None else {"slab": base, "shard": str(shard)}


class SlabReader:
    """Reads the metrics of slabs, again and again. Several threads can read at once.

    Args:
        slabs: the names of the slabs, where one name stands for all of its shards; by default all of this host. Those
            of other users count as unreadable, unless this process is root's.
        partitions: whether the metrics of topics have a series for each partition.
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
                reading = read_slab(name, partitions=self._partitions)
            except SlabNotFoundError:
                continue  # removed since the names were listed
            except (SlabError, OSError) as error:
                unreadable[type(error).__name__] += 1
            else:
                slabs[name] = {**reading.series, catalogue.ERRORS: self._errors.of(reading)}
        return Snapshot(slabs, unreadable, time.perf_counter() - began)


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

    def of(self, reading: SlabReading) -> Series:
        """Return the totals of a slab, with this reading."""
        with self._lock:
            seen, totals = self._seen.setdefault((reading.name, reading.created_ms), ({}, Counter()))
            for number, (error, count) in reading.errors.items():
                if count > seen.get(number, 0):
                    totals[error] += count - seen.get(number, 0)
                    seen[number] = count
            newest = max(reading.errors, default=0)
            for number in [number for number in seen if number < newest and number not in reading.errors]:
                del seen[number]  # dropped: a number is never used again
            return {(error,): count for error, count in sorted(totals.items())}
