"""What dies in a run of ``--exactly-once --spark``: the data source, and the user's code before it.

The data source is the real one, but for what it does first: `DyingDataSource` draws a lot in each process that plans,
commits or writes. By that lot, the process dies at a line of the code that makes the write exactly once.

Each micro-batch imports this in new processes, so it imports as little as the data source does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from shmaccum.spark.datasource import ShmAccumDataSource
from shmaccum.spark.writers import TaskCommit, WriteTask
from tools.stress.lots import Lots, die, die_with_jvm

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 60
"""Of a task."""
ROWS_AT_ONCE: Final = 20
_LINES_OF_A_PLAN: Final = 1500
_LINES_OF_A_COMMIT: Final = 1500
_LINES_OF_A_TASK: Final = 700
"""About the number of lines that run there. A process dies at one of them."""
_SENDER_S: Final = 5.0
"""How long a task waits for the sender that it is to kill: it can be starting."""
_ALONE: Final = 0.6
"""Share of the deaths in which such a process dies, and the driver does not."""
LOTS: Final = "stress.lots"
"""The option by which `DyingDataSource` gets its lots."""


@dataclass(frozen=True)
class DyingTask(WriteTask):
    """A task whose process dies by lot, or waits with its transaction open."""

    lots: Lots | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        assert self.lots is not None
        lots, lot = self.lots, self.lots.draw("task")
        deaths = [
            (lots.kill_worker, "workers killed", die),
            (lots.kill_executor, "executors killed, with their workers", die_with_jvm),
            (lots.kill_sender, "", self._kill_sender),
        ]
        with lots.death(lot, _LINES_OF_A_TASK, *deaths):
            commit = super().write(self._slowly(batches, lot))
        if commit.result is not None and commit.result.transaction is None:  # each task has rows
            lots.note("tasks not written again: their micro-batch was decided")
        return commit

    def _kill_sender(self) -> None:
        from tools.support.slabcheck import sender_pid

        assert self.lots is not None
        deadline = time.monotonic() + _SENDER_S
        while not (pid := sender_pid(self.config.slab_name(os.geteuid()))):
            if time.monotonic() > deadline:
                self.lots.note("senders not there to be killed")
                return
            time.sleep(0.01)
        self.lots.note("senders killed")
        os.kill(pid, signal.SIGKILL)

    def _slowly(self, batches: Iterable[pa.RecordBatch], lot: random.Random) -> Iterator[pa.RecordBatch]:
        assert self.lots is not None
        waits = lot.random() < self.lots.slow_task
        for batch in batches:
            yield batch
            if waits:
                self.lots.note("tasks slowed down")
                time.sleep(1 + lot.random() * 2)
                waits = False


class DyingDataSource(ShmAccumDataSource):
    """The data source ``shmaccum``, whose processes die by lot."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return a query's writer (`ShmAccumDataSource.streamWriter`); this process can die from here on."""
        lots = Lots(**json.loads(self.options[LOTS]))
        plans = not self._is_unpickled
        sys.settrace(None)  # Spark may use this process again
        who, lines = ("planning processes", _LINES_OF_A_PLAN) if plans else ("committing processes", _LINES_OF_A_COMMIT)
        alone = lots.kill_driver * _ALONE
        deaths = [
            (alone, f"{who} killed", die),
            (lots.kill_driver - alone, f"{who} killed, with the driver", die_with_jvm),
        ]
        lots.death(lots.draw(who), lines, *deaths).__enter__()  # until this process ends: it commits after this call
        writer: Any = super().streamWriter(schema, overwrite)
        if plans:
            writer._task = DyingTask(**vars(writer._task), lots=lots)
        return writer


@dataclass(frozen=True)
class Rows:
    """The user's code in each task, which fails by lot: before its rows, amid them, or after the last."""

    lots: Lots

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows unchanged."""
        lot = self.lots.draw("rows")
        fails = lot.random() < self.lots.fail_task
        fails_after = lot.choice((0, ROWS // 2, ROWS)) if fails else ROWS + 1
        rows = 0
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                self._fail_if(rows >= fails_after, rows)
                part = batch.slice(start, ROWS_AT_ONCE)
                rows += part.num_rows
                yield part
        self._fail_if(rows >= fails_after, rows)

    def _fail_if(self, fails: bool, rows: int) -> None:
        if fails:
            where = "before" if not rows else "after" if rows == ROWS else "amid"
            self.lots.note(f"tasks failed {where} their rows")
            raise RuntimeError("this attempt is to fail")
