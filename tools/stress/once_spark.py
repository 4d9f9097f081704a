"""A run of ``--exactly-once --spark``: a real Structured Streaming query, killed at every step.

A query reads files and writes them by ``format("shmaccum")`` with ``exactlyOnce`` into an Apache Kafka of its own
(the data source of `tools.stress.once_source`). The rows of a file are one task's. Files do not change, so a batch that
Spark plans again has the same rows. After each death, the next driver starts at once on the same
checkpoint, whether or not executors of the former one are still at work. By lot of ``--seed``, for each process or each
micro-batch:

* the process that plans, or the one that commits, dies at a line of the transactions' code; or the driver dies there;
* the driver dies at any time: its JVM is killed;
* a task's worker dies at such a line, or its executor (``local-cluster``), or the sender;
* a task's own code fails before, amid or after its rows; or it waits, half done, so that Spark gives the task to
  another worker, too (speculation, with ``local-cluster``).

In the end all files are written, and a ``read_committed`` consumer sees each row once. No transaction is open, nothing
is in /dev/shm, and no process is left. Only processes that this one has started, directly or not, are killed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from shmaccum.shm.lifecycle import unlink
from tools.spark_jvm import VARIABLE, jvm_options, start_session
from tools.stress.exactly_once import TOPIC, Job, broker, check, last_plan, report, write_options
from tools.stress.lots import Lots
from tools.stress.once_source import LOTS, ROWS, ROWS_AT_ONCE, DyingDataSource, Rows
from tools.stress.run import TICK_S, come_to_rest
from tools.support.proc import command_of
from tools.support.processes import Children, descendants
from tools.support.slabcheck import sender_pid

_EXECUTORS: Final = 2
_CORES: Final = 2
"""Of each executor; of the driver, without executors."""
_TASK_FAILURES: Final = 4
"""Of one task, before the query fails: Spark's default."""
_RESTARTS: Final = 20
"""Most failures of the query in one driver."""
_SETTINGS: Final = Path(__file__).with_name("spark-defaults.conf")
_JAVA: Final = Path(__file__).with_name("java.sh")
"""What executors run as Java."""
_PROGRESS_S: Final = 600.0
"""How long a micro-batch may take, with all its repetitions, before this is an error of the run."""
_END_S: Final = 90.0
"""How long processes may live on after the query."""
_KILL_WITHIN_S: Final = 3.0
"""A kill that no line decides comes this long after its micro-batch began, at most."""


class SparkRun:
    """All micro-batches, with as many drivers as it takes; ``write`` has the data source's options."""

    def __init__(self, options: argparse.Namespace, write: dict[str, str], directory: Path) -> None:
        self._options = options
        self._write = write
        self._directory = directory
        self._lots = random.Random(options.seed)
        self._kill_at = math.inf
        self._batches = 0
        self._progress = time.monotonic()
        (directory / "lots").mkdir()
        chances = {each.name: getattr(options, each.name) or 0.0 for each in fields(Lots)[2:]}
        self._draws = Lots(str(directory / "lots"), options.seed, **chances)
        self._driver = 0
        self.children = Children(directory / "messages", judge_inherited=False)
        self.wrong: list[str] = []

    def all(self) -> None:
        options, children = self._options, self.children
        (self._directory / "files").mkdir()
        for file in range(options.runs * options.tasks):
            rows = b"".join(value_of(file, row) + b"\n" for row in range(ROWS))
            (self._directory / "files" / f"{file:06d}.txt").write_bytes(rows)
        while not (self._checkpoint / "commits" / str(options.runs - 1)).exists():
            children.counts["drivers started"] += 1
            self._driver = children.fork(
                "the driver",
                lambda: drive(options.spark, options.tasks, self._write, self._draws, self._directory),
            )
            if not self._attend():
                break
        self._count_events()
        children.counts.update(self._draws.notes())
        children.counts["micro-batches"] = self._batches

    @property
    def _checkpoint(self) -> Path:
        return Path(self._write["checkpointLocation"])

    def _attend(self) -> bool:
        """Kill by lot until the driver has ended; return whether the run can go on."""
        while self._driver not in self.children.reap():
            now = time.monotonic()
            batches = _numbers(self._checkpoint / "offsets")
            if batches > self._batches:
                self._batches, self._progress = batches, now
                after_s = self._lots.random() * _KILL_WITHIN_S
                if self._lots.random() < self._options.kill_driver / 5:
                    self._kill_at = now + after_s
            if now > self._kill_at:
                self._kill_at = math.inf
                jvms = (pid for pid in descendants(self._driver) if "spark.deploy.SparkSubmit" in command_of(pid))
                with suppress(ProcessLookupError, StopIteration):
                    self.children.kill(next(jvms), "driver")
            if now > self._progress + _PROGRESS_S:
                self.wrong.append(f"micro-batch {batches - 1} was not committed within {_PROGRESS_S:.0f} s")
                return False
            time.sleep(TICK_S)
        return True

    def _count_events(self) -> None:
        """Count the attempts of tasks in Spark's own logs; a killed driver's lacks its last lines."""
        counts = self.children.counts
        for line in (line for file in (self._directory / "events").iterdir() for line in file.read_text().splitlines()):
            with suppress(json.JSONDecodeError):
                event = json.loads(line)
                task = event.get("Task Info")
                if event["Event"] == "SparkListenerTaskStart":
                    counts["attempts of tasks"] += 1
                    counts["speculative attempts"] += task["Speculative"]
                elif event["Event"] == "SparkListenerTaskEnd":
                    counts["attempts that failed"] += task["Failed"]
                    counts["attempts that Spark killed: another one was first"] += task["Killed"]
                elif event["Event"] == "SparkListenerExecutorRemoved":
                    counts["executors that Spark lost"] += 1

    def end(self) -> None:
        """Wait until all that Spark has started is gone; then plan again, as the next start of the query does."""
        name = self._write["kafka.shmaccum.name"]
        deadline = time.monotonic() + _END_S
        while left := [pid for pid in self._started() if pid != sender_pid(name)]:
            self.children.reap()
            if time.monotonic() > deadline:
                self.wrong += [f"a process is left: {command_of(pid)[:200]}" for pid in left]
                break
            time.sleep(TICK_S)
        settings = {key[len("kafka.") :]: value for key, value in self._write.items() if key.startswith("kafka.")}
        del settings["transactional.id"]
        _, problems = come_to_rest(name, settings, self.children)
        self.wrong += problems
        self.wrong += last_plan(Job(self._write))

    def _started(self) -> list[int]:
        """Return the pids below this process, but for the broker's."""
        brokers = {each for pid in self.children.before for each in (pid, *descendants(pid))}
        return [pid for pid in descendants(os.getpid()) if pid not in brokers]


def _numbers(log: Path) -> int:
    """Return how many batches a log of the checkpoint has."""
    names = os.listdir(log) if log.exists() else []
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


# --- the driver -----------------------------------------------------------------------------------------


def value_of(file: int, row: int) -> bytes:
    """Return a row; all have the same length, so that each file is one task."""
    return b"%06d %03d" % (file, row)


def drive(master: str, tasks: int, options: dict[str, str], lots: Lots, directory: Path) -> int:
    """Run the query until it has written all files, or this driver dies; return the exit status.

    The directory is the run's: it has its ``files``, its ``checkpoint``, and what Spark writes.
    """
    spark = _session(master, directory)
    for _ in range(_RESTARTS):
        rows = spark.readStream.option("maxFilesPerTrigger", tasks).text(str(directory / "files"))
        if lots.fail_task:
            rows = rows.mapInArrow(Rows(lots), "value string")
        writer = rows.writeStream.format("shmaccum").options(**options, **{LOTS: json.dumps(asdict(lots))})
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
    """Start Spark on loopback; its Python workers can import the tools."""
    import pyspark

    paths = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])]  # in this order: the package can be compiled
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    os.environ[VARIABLE] = jvm_options()
    home, java = directory / "spark", directory / "java" / "bin" / "java"
    if not home.exists():  # the executors' directories are below it
        home.mkdir()
        for path in Path(pyspark.__file__).parent.iterdir():
            (home / path.name).symlink_to(path)
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.read_text().replace("{java}", shutil.which("java") or "java"))
        java.chmod(0o755)
        (directory / "events").mkdir()
    if master != "local":  # else the JVM starts faster: its class archive is for Spark's own home
        os.environ["SPARK_HOME"] = str(home)
    masters = {
        "local": f"local[{_CORES},{_TASK_FAILURES}]",
        "local-cluster": f"local-cluster[{_EXECUTORS},{_CORES},1024]",
    }
    lines = (line for line in _SETTINGS.read_text().splitlines() if not line.startswith("#"))
    settings = dict(line.split(maxsplit=1) for line in lines) | {
        "spark.executorEnv.JAVA_HOME": str(java.parents[1]),
        "spark.task.maxFailures": str(_TASK_FAILURES),
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.sql.files.maxPartitionBytes": str(len(value_of(0, 0) + b"\n") * ROWS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
    }
    spark = start_session(masters[master], directory, settings)
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


def main(options: argparse.Namespace) -> int:
    name = f"stress-once-{os.getpid()}"
    with broker(options.transaction_version) as (cluster, directory):
        began = time.monotonic()
        write = write_options(cluster.bootstrap_servers, name) | {"checkpointLocation": str(directory / "checkpoint")}
        run = SparkRun(options, write, directory)
        try:
            run.all()
            run.end()
        finally:
            run.children.kill_all()
            unlink(name)
        files = range(options.runs * options.tasks)
        expected = {value_of(file, row) for file in files for row in range(ROWS)}
        wrong = run.wrong + check(cluster.bootstrap_servers, name, expected)
        if wrong:
            kept = tempfile.mkdtemp(prefix="shmaccum-stress-kept-")
            shutil.copytree(directory, kept, dirs_exist_ok=True, symlinks=True)
            print(f"  The messages, the checkpoint and Spark's events are in {kept}")
    errors = {what: count for what, count in run.children.counts.items() if what.startswith("query failed")}
    counts = {what: count for what, count in run.children.counts.items() if what not in errors}
    return report(options, counts, errors, wrong, began)
