"""A run with PySpark: kills its Python workers while they write through the data source.

Spark retries a task whose worker was killed, with all of its rows; the rows of the first attempt are delivered too. So
at Spark's level every row arrives *at least* once, and these are the checks:

* every task of every job has an attempt whose rows are all in the log (else rows are *missing*);
* Of each attempt, no row occurs twice, and rows of one key are in order and in the key's partition. Of an interrupted
  attempt, the rows of each key are its first ones (*duplicated*, *out of order*, *misplaced*, *half*);
* there are at most as many attempts as tasks and killed workers (else *unexpected*): only kills made Spark retry;
* no batch or record is *torn*, and the slab is at rest at the end, as in `tools.stress`.

Victims are Spark's workers that have appended to the slab, with ``--kill-producers``, and senders, with
``--kill-sender``; a kill without a victim is skipped and counted. ``--producers`` is the number of concurrent tasks.

A record names the attempt of its task (`tools.stress.accounting`, with the attempt in place of the writer). Its key
names the job, the task and a number from 0 to `KEYS_A_TASK` - 1. So a reader of the log can assign each record to its
attempt.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from shmaccum.errors import SlabError
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look
from tools.stress.accounting import Route, Verdict, make_value, partition_of, read_value
from tools.stress.options import TOPICS, Options
from tools.stress.run import SENDER, TICK_S, AnyRun, Event, make_plan
from tools.support.processes import is_descendant, parent_of
from tools.support.reading import Stored
from tools.support.slabcheck import sender_pid

TOPIC: Final = TOPICS[0]
TASKS_A_JOB: Final = 16
ROWS_A_TASK: Final = 10_000
KEYS_A_TASK: Final = 8
_START_PATIENCE_S: Final = 300.0
_END_PATIENCE_S: Final = 180.0
"""Limit for the last job after the time of the load, without further kills."""


class SparkRun(AnyRun):
    """A run with PySpark."""

    judges_inherited = False
    """Spark's end as they please."""

    def work(self) -> None:
        """Drive Spark and kill."""
        options, children = self.options, self.children
        self._at_first: dict[int, int] = {}
        plan = make_plan(Options(**vars(options) | {"stop": 0, "terminate": 0}))
        driver = children.fork("Spark's driver", lambda: drive(self.settings, options, self.directory))
        deadline = time.monotonic() + _START_PATIENCE_S
        while not self._workers():  # until one has appended something
            if driver in children.reap() or time.monotonic() > deadline:
                return
            time.sleep(TICK_S)
        started = time.monotonic()
        while driver not in children.reap():
            now = time.monotonic()
            workers = self._workers()
            while plan and plan[0].at_s <= now - started:
                self._carry_out(plan.pop(0), workers)
            if now > started + options.seconds + _END_PATIENCE_S:
                children.abort(driver, f"did not end within {_END_PATIENCE_S:.0f} s after the last kill")
                break
            time.sleep(TICK_S)
        self.outcome.seconds = time.monotonic() - started

    def judge(self, records: Iterator[Stored]) -> Verdict:
        """Compare the log with the rows of all jobs."""
        jobs_file = self.directory / "jobs"
        jobs = int(jobs_file.read_text()) if jobs_file.exists() else 0
        if not jobs:
            self.outcome.problems.append(f"no job has ended; see {self.messages}")
        verdict, attempts = judge_jobs(records, jobs, self.children.counts["workers killed"], self.options.partitions)
        self.outcome.counts |= {
            "jobs": jobs,
            "tasks": jobs * TASKS_A_JOB,
            "attempts found": attempts,
            "rows written again": verdict.records - jobs * TASKS_A_JOB * ROWS_A_TASK,
        }
        return verdict

    def _carry_out(self, event: Event, workers: Sequence[int]) -> None:
        """Do an action, if there is a victim."""
        if event.victim == SENDER:
            what, victims = "sender", [pid for pid in [sender_pid(self.name)] if pid and is_descendant(pid)]
        else:
            what, victims = "worker", [pid for pid in workers if not self.children.is_dying(pid)]
        if victims:
            self.children.kill(victims[event.victim % len(victims)], what)
        else:
            self.children.counts[f"{what}s not there"] += 1

    def _workers(self) -> list[int]:
        """Return the pids of Spark's Python workers that have appended to the slab.

        A count belongs to the entry, over all its processes: a worker has appended if the count has changed.
        """
        try:
            with look(self.name) as view:
                producers = [each for each in view.processes() if each.alive and Role.PRODUCER in each.roles]
        except SlabError:
            return []
        self._at_first = {each.pid: self._at_first.get(each.pid, each.records) for each in producers}
        appended = [each.pid for each in producers if each.records > self._at_first[each.pid]]
        return [pid for pid in appended if "pyspark.daemon" in command_of(parent_of(pid))]


# --- Spark ----------------------------------------------------------------------------------------------


def command_of(pid: int) -> str:
    """Return a process's command line, empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def start_spark(master: str, scratch: Path, more: Mapping[str, str]) -> Any:
    """Start Spark on loopback, with more settings; its Python workers can import the tools."""
    paths = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])]  # in this order: the package can be compiled
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("shmaccum stress")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "scratch"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **more,
    }.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # failing tasks are expected
    return spark


def key_of(job: int, task: int, row: int) -> bytes:
    """Return the key of a row."""
    return b"%d %d %d" % (job, task, row % KEYS_A_TASK)


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


def drive(settings: Mapping[str, object], options: Options, scratch: Path) -> int:
    """Run jobs until the time is over; write their number to ``jobs`` in ``scratch``. Return the exit status."""
    from shmaccum.spark import register

    # Random kills of one task soon exceed Spark's default of 4. The JVM starts faster with these options.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = start_spark(f"local[{options.producers},1000]", scratch, java)
    register(spark)
    jobs = 0
    ends = time.monotonic() + options.seconds
    while time.monotonic() < ends:
        rows = spark.range(0, TASKS_A_JOB * ROWS_A_TASK, numPartitions=TASKS_A_JOB)
        records = rows.mapInArrow(Records(jobs, options.record_size), "key binary, value binary")
        writer = records.write.format("shmaccum").mode("append").option("topic", TOPIC)
        writer = writer.options(**{f"kafka.{name}": str(value) for name, value in settings.items()})
        writer.save()
        jobs += 1
    (scratch / "jobs").write_text(str(jobs))
    spark.stop()
    return 0


# --- the records ----------------------------------------------------------------------------------------


def judge_jobs(records: Iterable[Stored], jobs: int, kills: int, partitions: int) -> tuple[Verdict, int]:
    """Compare the log with the rows of all jobs; also return the number of attempts with rows in it.

    Args:
        records: of all partitions, each partition's in the order of their offsets.
        jobs: their number, each of `TASKS_A_JOB` tasks of `ROWS_A_TASK` rows.
        kills: of workers.
        partitions: of the topic.
    """
    verdict = Verdict(appended=jobs * TASKS_A_JOB * ROWS_A_TASK)
    attempts: dict[tuple[int, int], dict[int, dict[bytes, list[int]]]] = defaultdict(dict)
    for record in records:
        verdict.records += 1
        verdict.bytes += len(record.value or b"")
        content = read_value(record.key, record.value)
        where = f"{record.topic}-{record.partition} at {record.offset}"
        if content is None or record.key is None:
            verdict.add("torn", where)
            continue
        if record.partition != partition_of(Route(None, record.key), partitions):
            verdict.add("misplaced", f"key {record.key!r}, {where}")
        attempt, row = content
        job_number, task_number, _ = map(int, record.key.split())
        by_key = attempts[job_number, task_number].setdefault(attempt, defaultdict(list))
        by_key[record.key].append(row)
    for task, its_attempts in attempts.items():
        for attempt, by_key in its_attempts.items():
            for key, rows in by_key.items():
                first = int(key.rsplit(b" ", 1)[1])
                what = f"attempt {attempt} at task {task}, key {key!r}"
                if len(set(rows)) < len(rows):
                    verdict.add("duplicated", what)
                elif rows != sorted(rows):
                    verdict.add("out of order", what)
                elif rows != list(range(first, first + KEYS_A_TASK * len(rows), KEYS_A_TASK)):
                    verdict.add("half", what)
    for job in range(jobs):
        for number in range(TASKS_A_JOB):
            most = max((sum(map(len, of.values())) for of in attempts.get((job, number), {}).values()), default=0)
            if most < ROWS_A_TASK:
                verdict.add("missing", f"task {number} of job {job} has {most} of {ROWS_A_TASK} rows at most")
    found = sum(map(len, attempts.values()))
    if found > jobs * TASKS_A_JOB + kills:
        verdict.add("unexpected", f"{found} attempts at {jobs * TASKS_A_JOB} tasks, but {kills} workers were killed")
    return verdict, found
