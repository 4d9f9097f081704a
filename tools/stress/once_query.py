"""The Spark driver of a run of ``--exactly-once --spark``: a streaming query from files to Kafka.

The rows of a file are one task's. Files do not change, so a batch that Spark plans again has the same rows.

The data source is the real one, but for what it does first: `DyingDataSource` draws a lot in each process that plans,
commits or writes. By that lot, the process dies at a line of the code that makes the write exactly once.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from shmaccum.spark.datasource import ShmAccumDataSource
from shmaccum.spark.task import TaskCommit, WriteTask
from tools.spark_jvm import VARIABLE, jvm_options
from tools.stress.death import die
from tools.stress.once_lots import Lots, die_with_jvm
from tools.stress.visible_once import TOPIC
from tools.support.slabcheck import sender_pid

ROWS: Final = 60
"""Of a task."""
_ROWS_AT_ONCE: Final = 20
_EXECUTORS: Final = 2
_CORES: Final = 2
"""Of each executor; of the driver, without executors."""
_TASK_FAILURES: Final = 4
"""Of one task, before the query fails: Spark's default."""
_RESTARTS: Final = 20
"""Most failures of the query in one driver."""
_LINES_OF_A_PLAN: Final = 1500
_LINES_OF_A_COMMIT: Final = 1500
_LINES_OF_A_TASK: Final = 700
"""About the number of lines that run there. A process dies at one of them."""
_SENDER_S: Final = 5.0
"""How long a task waits for the sender that it is to kill: it can be starting."""
_ALONE: Final = 0.6
"""Share of the deaths in which such a process dies, and the driver does not."""
_LOTS: Final = "stress.lots."

_JAVA: Final = """\
#!/bin/bash
# Spark never speculates on the host of the first attempt, so each executor has an address of its own.
id=0 last=
for each in "$@"; do
    [ "$last" = --executor-id ] && id=$each
    last=$each
done
arguments=()
last=
for each in "$@"; do
    [ "$last" = --hostname ] && each=127.0.1.$((id % 250 + 1))
    arguments+=("$each")
    last=$each
done
exec {java} "${{arguments[@]}}"
"""


@dataclass(frozen=True)
class DyingTask(WriteTask):
    """A task whose process dies by lot, or waits with its transaction open."""

    lots: Lots | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of one task (`WriteTask.write`)."""
        assert self.lots is not None
        lots, lot = self.lots, self.lots.draw("task")
        deaths = [
            (lots.kill_worker, "workers killed", die),
            (lots.kill_executor, "executors killed, with their workers", die_with_jvm),
            (lots.kill_sender, "senders killed", self._kill_sender),
        ]
        with lots.death(lot, _LINES_OF_A_TASK, *deaths):
            commit = super().write(self._slowly(batches, lot))
        if commit.result is not None and commit.result.transaction is None:  # each task has rows
            lots.note("tasks not written again: their micro-batch was decided")
        return commit

    def _kill_sender(self) -> None:
        assert self.lots is not None
        deadline = time.monotonic() + _SENDER_S
        while not (pid := sender_pid(self.config.slab_name(os.geteuid()))):
            if time.monotonic() > deadline:
                self.lots.note("senders not there to be killed")
                return
            time.sleep(0.01)
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
        given = {each.name: self.options[f"{_LOTS}{each.name}"] for each in fields(Lots)}
        lots = Lots(given.pop("directory"), int(given.pop("seed")), **{name: float(p) for name, p in given.items()})
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
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                self._fail_if(rows >= fails_after, rows)
                part = batch.slice(start, _ROWS_AT_ONCE)
                rows += part.num_rows
                yield part
        self._fail_if(rows >= fails_after, rows)

    def _fail_if(self, fails: bool, rows: int) -> None:
        if fails:
            where = "before" if not rows else "after" if rows == ROWS else "amid"
            self.lots.note(f"tasks failed {where} their rows")
            raise RuntimeError("this attempt is to fail")


def value_of(file: int, row: int) -> bytes:
    """Return a row; all have the same length, so that each file is one task."""
    return b"%06d %03d" % (file, row)


def write_files(directory: Path, files: int) -> None:
    """Write all rows."""
    directory.mkdir()
    for file in range(files):
        (directory / f"{file:06d}.txt").write_bytes(b"".join(value_of(file, row) + b"\n" for row in range(ROWS)))


def drive(master: str, tasks: int, options: dict[str, str], lots: Lots, directory: Path) -> int:
    """Run the query until it has written all files, or this driver dies; return the exit status.

    Args:
        master: ``local`` or ``local-cluster``.
        tasks: of each batch.
        options: of the data source.
        lots: of all processes.
        directory: of the run: its ``files``, its ``checkpoint``, and what Spark writes.
    """
    spark = _session(master, directory)
    chances = {f"{_LOTS}{each.name}": str(getattr(lots, each.name)) for each in fields(Lots)}
    for _ in range(_RESTARTS):
        rows = spark.readStream.option("maxFilesPerTrigger", tasks).text(str(directory / "files"))
        writer = (
            rows.mapInArrow(Rows(lots), "value string").writeStream.format("shmaccum").options(**options, **chances)
        )
        query = writer.option("topic", TOPIC).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            break
        except Exception as error:
            lots.note(f"query failed: {_shown(error)}")  # if the driver's JVM is gone, the next call raises
            spark.sparkContext._jsc.sc().isStopped()
    else:
        return 1
    spark.stop()
    return 0


def _session(master: str, directory: Path) -> Any:
    """Start Spark."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])]  # in this order: the package can be compiled
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ[VARIABLE] = jvm_options()
    home, java = directory / "spark", directory / "java" / "bin" / "java"
    if not home.exists():  # the executors' directories are below it
        home.mkdir()
        for path in Path(pyspark.__file__).parent.iterdir():
            (home / path.name).symlink_to(path)
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.format(java=shutil.which("java")))
        java.chmod(0o755)
        (directory / "events").mkdir()
    if master != "local":  # else the JVM starts faster: its class archive is for Spark's own home
        os.environ["SPARK_HOME"] = str(home)
    masters = {
        "local": f"local[{_CORES},{_TASK_FAILURES}]",
        "local-cluster": f"local-cluster[{_EXECUTORS},{_CORES},1024]",
    }
    builder = SparkSession.builder.master(masters[master]).appName("shmaccum stress")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executorEnv.JAVA_HOME": str(java.parents[1]),
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": str(_TASK_FAILURES),
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.efficiency.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.sql.files.maxPartitionBytes": str(len(value_of(0, 0) + b"\n") * ROWS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_AT_ONCE),
        "spark.sql.pandas.udf.buffer.size": "256",  # so that rows reach the writer one batch after the other
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # failing tasks are expected
    spark.dataSource.register(DyingDataSource)
    return spark


def _shown(error: Exception) -> str:
    """Return what failed, without what differs each time."""
    if type(error).__name__ != "StreamingQueryException":
        return f"{type(error).__name__}: the driver is gone"
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
    text = lines[-1] if lines else str(error).rpartition("terminated with exception: ")[2]
    return re.sub("[0-9]", "#", text[:160])
