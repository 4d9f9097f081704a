"""A streaming query in the session: micro-batches of a fixed number of rows, at a fixed interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tools.benchmark.errors import BenchmarkError
from tools.benchmark.spark.jobs import MicroBatch, Query, data_source, values

_LOOK_EVERY_S: Final = 0.05


def run_query(
    spark: Any, query: Query, slab: str, checkpoint: Path, ready: Callable[[], None], report: Callable[[Any], None]
) -> None:
    """Run a query until all its measured micro-batches are committed.

    It starts at a multiple of its interval, as Spark triggers all micro-batches but the first. So the first one has a
    whole interval, and the next one does not begin late.

    Args:
        spark: the session.
        query: what to run.
        slab: name of our slab.
        checkpoint: a directory that does not exist yet.
        ready: called once the first micro-batch is committed, which does not count.
        report: called with those that count, before the query is stopped.

    Raises:
        BenchmarkError: the query ended, or its micro-batches had other numbers of rows.
    """
    job = query.job
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
    running = writer.start()
    try:
        _wait_for(running, 0)
        ready()
        _wait_for(running, query.measured)
        progress = [each for each in running.recentProgress if 1 <= each.batchId <= query.measured]
        if [each.numInputRows for each in progress] != [job.rows] * query.measured:
            raise BenchmarkError(f"micro-batches had {[each.numInputRows for each in progress]} rows, not {job.rows}")
        report([_micro_batch(each) for each in progress])
    finally:
        running.stop()


def _wait_for(running: Any, number: int) -> None:
    """Wait until a micro-batch is committed."""
    while (last := running._jsq.lastProgress()) is None or last.batchId() < number:  # without its text of the whole
        if not running.isActive:
            raise BenchmarkError(f"the query ended before its micro-batch {number}: {running.exception()}")
        time.sleep(_LOOK_EVERY_S)


def _micro_batch(progress: Any) -> MicroBatch:
    durations = progress.durationMs
    return MicroBatch(
        datetime.fromisoformat(progress.timestamp).timestamp(),
        durations["triggerExecution"] / 1000,
        durations["addBatch"] / 1000,
    )
