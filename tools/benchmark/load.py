"""The load: the same records for every contestant, created before the measurement."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_BATCH: Final = 10_000
"""The number that Spark puts into an Arrow batch."""

_DISTINCT: Final = 1000
"""Different values: enough that no cache holds all of a compressed batch, few enough to create quickly."""
_DISTINCT_BYTES: Final = 16 << 20
_DISTINCT_KEYS: Final = 10_000

Call = tuple[bytes, bytes | None, Any]
"""Value, key and partition of a record."""


@dataclass(frozen=True, slots=True)
class Load:
    """Records for one producer.

    Attributes:
        topic: to send to.
        values: of the records.
        keys: of the records, if they have some.
        partitions: of the records, if given.
        keep: whether every record's result is requested, by a future or a callback each.
        batches: instead of `values` and `keys`, Arrow batches with these columns.
    """

    topic: str
    values: Sequence[bytes] = ()
    keys: Sequence[bytes] | None = None
    partitions: Sequence[int] | None = None
    keep: bool = False
    batches: Sequence[pa.RecordBatch] = ()

    @property
    def count(self) -> int:
        return len(self.values) or sum(batch.num_rows for batch in self.batches)

    @property
    def size(self) -> int:
        """Bytes of all keys and values."""
        if self.batches:
            from pyarrow import compute

            columns = (column for batch in self.batches for column in batch.columns)
            return sum(compute.sum(compute.binary_length(column)).as_py() for column in columns)
        return sum(map(len, self.values)) + sum(map(len, self.keys or ()))

    def calls(self, any_partition: Any = None) -> Iterator[Call]:
        """Yield the arguments for one record after the other.

        Args:
            any_partition: the library's value for a partition that it chooses itself.
        """
        if self.batches:
            return itertools.chain.from_iterable(_rows(batch, any_partition) for batch in self.batches)
        return zip(
            self.values,
            itertools.repeat(None) if self.keys is None else self.keys,
            itertools.repeat(any_partition) if self.partitions is None else self.partitions,
            strict=False,
        )

    def first(self, count: int) -> Load:
        """Return a load with the first records: at least ``count``, if there are that many."""
        if self.batches:
            return replace(self, batches=self.batches[: -(-count // self.batches[0].num_rows)])
        return replace(self, values=self.values[:count])


def _rows(batch: pa.RecordBatch, any_partition: Any) -> Iterator[Call]:
    """Yield the rows of a batch, extracted in the cheapest way."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    keys = columns["key"].to_pylist() if "key" in columns else itertools.repeat(None)
    return zip(columns["value"].to_pylist(), keys, itertools.repeat(any_partition))


def make_values(count: int, size: int) -> list[bytes]:
    """Return values of a size, like an application's JSON: they compress to about a fifth."""
    chance = random.Random(size)
    rows = [_row(chance) for _ in range(_DISTINCT)]
    least = min(map(len, rows))
    distinct = []
    for _ in range(min(count, _DISTINCT, max(1, _DISTINCT_BYTES // size))):
        start = chance.randrange(least)
        distinct.append(b"".join(chance.choices(rows, k=size // least + 2))[start : start + size])
    return [distinct[number % len(distinct)] for number in range(count)]


def _row(chance: random.Random) -> bytes:
    flight = {
        "flight": chance.randrange(10_000),
        "carrier": chance.choice(("UA", "AA", "DL", "B6", "WN")),
        "delay": round(chance.gauss(10, 30), 1),
        "tail": f"N{chance.randrange(100_000):05}",
    }
    return json.dumps(flight).encode()


def make_keys(count: int) -> list[bytes]:
    """Return keys of ten bytes."""
    return [b"key-%06d" % (number * 7919 % _DISTINCT_KEYS) for number in range(count)]


def make_batches(count: int, size: int, *, keys: bool, rows: int = ROWS_A_BATCH) -> list[pa.RecordBatch]:
    """Return Arrow batches of ``rows`` rows each, and ``count`` rows in all."""
    import pyarrow as pa

    columns = {"value": pa.array(make_values(count, size), pa.binary())}
    if keys:
        columns["key"] = pa.array(make_keys(count), pa.binary())
    whole = pa.RecordBatch.from_pydict(columns)
    return [whole.slice(start, rows) for start in range(0, count, rows)]
