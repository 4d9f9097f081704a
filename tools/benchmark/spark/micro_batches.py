"""A streaming query in the session: micro-batches of a fixed number of rows, at a fixed interval."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tools.benchmark.errors import BenchmarkError
from tools.benchmark.spark.jobs import MicroBatch, Query, data_source, values

_LOOK_EVERY_S: Final = 0.05


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
        return [_micro_batch(each) for each in progress]

    def stop(self) -> None:
        self._running.stop()

    def _wait_for(self, number: int) -> None:
        # Without its text of the whole.
        while (last := self._running._jsq.lastProgress()) is None or last.batchId() < number:
            if not self._running.isActive:
                raise BenchmarkError(f"the query ended before its micro-batch {number}: {self._running.exception()}")
            time.sleep(_LOOK_EVERY_S)


def _micro_batch(progress: Any) -> MicroBatch:
    durations = progress.durationMs
    return MicroBatch(
        datetime.fromisoformat(progress.timestamp).timestamp(),
        durations["triggerExecution"] / 1000,
        durations["addBatch"] / 1000,
    )
