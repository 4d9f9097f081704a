"""What has come over all connections, counted in memory that the processes share which serve them."""

from __future__ import annotations

import mmap
from typing import Final

COUNTS: Final = ("open", "producing", "requests", "batches", "records", "bytes")
"""What is counted of a connection: whether it is open, and carried a batch; Produce requests; batches, the records and
bytes in them."""
OPEN, PRODUCING, REQUESTS, BATCHES, RECORDS, BYTES = range(len(COUNTS))

_ROWS: Final = 1024


class Counters:
    """The counts of all connections: a row each, which one process writes."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ROWS * len(COUNTS) * 8)
        self._words = memoryview(self._memory).cast("Q")
        self._of_former = [0] * len(COUNTS)
        self._used = 0

    def new_row(self) -> memoryview:
        """Return the row of a new connection: the oldest one's, once all rows are used."""
        start = self._used % _ROWS * len(COUNTS)
        self._used += 1
        row = self._words[start : start + len(COUNTS)]
        for place, count in enumerate(row):
            self._of_former[place] += count
            row[place] = 0
        return row

    def totals(self) -> dict[str, int]:
        """Return the sums over all connections that there have been."""
        return {
            name: self._of_former[place] + sum(self._words[place :: len(COUNTS)]) for place, name in enumerate(COUNTS)
        }
