"""What the Spark session is asked to run: jobs, and streams of micro-batches of one size at a fixed interval."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.settings import Settings, by_kafkas_names, for_shmaccum

SPARK_SINK: Final = "Spark's JVM sink"
KEPT_CONFLUENT: Final = f"{CONFLUENT}, a producer kept in each worker"
EXACTLY_ONCE: Final = f"{OURS}, exactly once"
NOTHING: Final = "a Python sink that does nothing"
ARROW: Final = "Arrow into Python"
PARTITIONS: Final = 4
"""Of a topic."""
ROW_SIZE: Final = 100
_LOOK_EVERY_S: Final = 0.05


class Job(NamedTuple):
    """A job.

    Attributes:
        how: a contestant's name, or `ARROW`.
        tasks: as many as the source has partitions.
        rows: of all tasks.
        row_size: bytes of a value.
        servers: ``bootstrap.servers`` of the turn.
        topic: to write to, that of the turn.
        settings: the same for all.
    """

    how: str
    tasks: int
    rows: int
    row_size: int = ROW_SIZE
    servers: str = ""
    topic: str = ""
    settings: Settings = Settings()


class Query(NamedTuple):
    """A streaming query whose micro-batches are all alike; those behind the first one are measured."""

    job: Job
    interval_s: float
    measured: int


class MicroBatch(NamedTuple):
    """A micro-batch, by Spark's own report.

    Attributes:
        began_s: when it was triggered, in seconds since the epoch.
        took_s: ``triggerExecution``: from then until its commit is in the checkpoint.
        add_batch_s: ``addBatch``: the part of it in which the sink plans, writes and commits.
    """

    began_s: float
    took_s: float
    add_batch_s: float


def values(column: str, size: int) -> str:
    """Return the SQL expression that makes a value of this many bytes of a number."""
    return f"rpad(CAST({column} AS STRING), {size}, ' abcdefghijklmnopqrstuvwxyz') AS value"


def data_source(job: Job, slab: str) -> tuple[str, Mapping[str, str]]:
    if job.how == NOTHING:
        return "nothing", {}
    is_ours = job.how in (OURS, EXACTLY_ONCE)
    settings = for_shmaccum(job.settings, slab) if is_ours else by_kafkas_names(job.settings)
    options = {f"kafka.{name}": str(value) for name, value in settings.items()}
    options |= {"kafka.bootstrap.servers": job.servers, "topic": job.topic}
    if job.how == EXACTLY_ONCE:
        options["exactlyOnce"] = "true"
    return "shmaccum" if is_ours else "kafka", options


class Running:
    """A query, started, whose first micro-batch is committed; that one does not count.

    It starts at a multiple of its interval, as Spark triggers all micro-batches but the first. So the first one has a
    whole interval, and the next one does not begin late.

    Args:
        spark: the session.
        query: what to run.
        slab: name of our slab.
        checkpoint: a directory that does not exist yet.
    """

    def __init__(self, spark: Any, query: Query, slab: str, checkpoint: Path) -> None:
        self._query, job = query, query.job
        rows = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", job.rows)
            .option("numPartitions", job.tasks)
            .load()
            # Spark can trigger one more before the query is stopped; it has no rows, so the topic's count stays exact.
            .where(f"value < {(1 + query.measured) * job.rows}")
            .selectExpr(values("value", job.row_size))
        )
        name, options = data_source(job, slab)
        writer = rows.writeStream.format(name).options(**options).option("checkpointLocation", str(checkpoint))
        writer = writer.trigger(processingTime=f"{round(query.interval_s * 1000)} milliseconds")
        time.sleep(query.interval_s - time.time() % query.interval_s)
        self._running = writer.start()
        self._wait_for(0)

    def measured(self) -> list[MicroBatch]:
        """Return the micro-batches that count, when the last of them is committed; the query still runs."""
        self._wait_for(self._query.measured)
        progress = [each for each in self._running.recentProgress if 1 <= each.batchId <= self._query.measured]
        rows = [each.numInputRows for each in progress]
        if rows != [self._query.job.rows] * self._query.measured:
            self.stop()
            raise BenchmarkError(f"micro-batches had {rows} rows, not {self._query.job.rows}")
        return [
            MicroBatch(
                datetime.fromisoformat(each.timestamp).timestamp(),
                each.durationMs["triggerExecution"] / 1000,
                each.durationMs["addBatch"] / 1000,
            )
            for each in progress
        ]

    def stop(self) -> None:
        self._running.stop()

    def _wait_for(self, number: int) -> None:
        # Without its text of the whole.
        while (last := self._running._jsq.lastProgress()) is None or last.batchId() < number:
            if not self._running.isActive:
                raise BenchmarkError(f"the query ended before its micro-batch {number}: {self._running.exception()}")
            time.sleep(_LOOK_EVERY_S)
