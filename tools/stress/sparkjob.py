"""The Spark driver of a run: jobs that write numbered records through the data source.

It runs in a process of its own. A record names the attempt of its task (`tools.stress.records`, with the attempt in
place of the writer). Its key names the job, the task and a number from 0 to `KEYS_A_TASK` - 1. So a reader of the log
can assign each record to its attempt.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tools.stress.options import TOPICS
from tools.stress.records import make_value

TOPIC: Final = TOPICS[0]
TASKS_A_JOB: Final = 16
ROWS_A_TASK: Final = 10_000
KEYS_A_TASK: Final = 8
_MOST_FAILURES: Final = 1000
"""Of one task: random kills soon exceed Spark's default, 4."""
_SCHEMA: Final = "key binary, value binary"


def key_of(job: int, task: int, row: int) -> bytes:
    """Return the key of a row."""
    return b"%d %d %d" % (job, task, row % KEYS_A_TASK)


def read_key(key: bytes) -> tuple[int, int]:
    """Return the job and the task of a key."""
    job, task, _ = key.split()
    return int(job), int(task)


@dataclass(frozen=True, slots=True)
class Records:
    """Creates a job's records from the numbers of its rows; pickled to the Python workers."""

    job: int
    record_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of one attempt of a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.taskAttemptId()
        row = 0
        for batch in batches:
            rows = range(row, row + batch.num_rows)
            row = rows.stop
            keys = [key_of(self.job, task, each) for each in rows]
            values = [make_value(attempt, each, key, self.record_size) for each, key in zip(rows, keys, strict=True)]
            yield pa.RecordBatch.from_pydict(
                {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            )


def drive(settings: Mapping[str, object], workers: int, seconds: float, record_size: int, scratch: Path) -> int:
    """Run jobs until the time is over; write their number to ``jobs`` in ``scratch``. Return the exit status."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    from pyspark.sql import SparkSession

    from shmaccum.spark import register

    builder = SparkSession.builder.master(f"local[{workers},{_MOST_FAILURES}]").appName("shmaccum stress")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts faster
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # failing tasks are expected
    register(spark)
    jobs = 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        rows = spark.range(0, TASKS_A_JOB * ROWS_A_TASK, numPartitions=TASKS_A_JOB)
        records = rows.mapInArrow(Records(jobs, record_size), _SCHEMA)
        writer = records.write.format("shmaccum").mode("append").option("topic", TOPIC)
        writer = writer.options(**{f"kafka.{name}": str(value) for name, value in settings.items()})
        writer.save()
        jobs += 1
    (scratch / "jobs").write_text(str(jobs))
    spark.stop()
    return 0
