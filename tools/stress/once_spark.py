"""A run of ``--exactly-once --spark``: a real Structured Streaming query, killed at every step.

A query reads files and writes them by ``format("shmaccum")`` with ``exactlyOnce`` into an Apache Kafka of its own
(`tools.stress.once_query`, `tools.stress.once_source`). After each death, the next driver starts at once on the same
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
import shutil
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shmaccum.shm.lifecycle import unlink
from tools.stress.once_lots import Lots
from tools.stress.rest import come_to_rest
from tools.stress.visible_once import Found, broker, check, report, write_options
from tools.support.processes import Children, descendants
from tools.support.slabcheck import sender_pid

_TICK_S: Final = 0.02
_PROGRESS_S: Final = 600.0
"""How long a micro-batch may take, with all its repetitions, before this is an error of the run."""
_END_S: Final = 90.0
"""How long processes may live on after the query."""
_KILL_WITHIN_S: Final = 3.0
"""A kill that no line decides comes this long after its micro-batch began, at most."""


class SparkRun:
    """All micro-batches, with as many drivers as it takes.

    Args:
        options: the command line's.
        write: the data source's options.
        directory: of the run.
    """

    def __init__(self, options: argparse.Namespace, write: dict[str, str], directory: Path) -> None:
        self._options = options
        self._write = write
        self._directory = directory
        self._lots = random.Random(options.seed)
        self._kill_at = math.inf
        self._batches = 0
        self._progress = time.monotonic()
        (directory / "lots").mkdir()
        self._draws = Lots(
            str(directory / "lots"),
            options.seed,
            options.kill_driver,
            options.kill_worker,
            options.kill_executor or 0.0,
            options.kill_sender,
            options.fail_task,
            options.slow_task,
        )
        self._driver = 0
        self.children = Children(directory / "messages", judge_inherited=False)
        self.wrong: list[str] = []

    def all(self) -> None:
        """Do all micro-batches."""
        from tools.stress import once_query

        options, children = self._options, self.children
        once_query.write_files(self._directory / "files", options.runs * options.tasks)
        while not (self._checkpoint / "commits" / str(options.runs - 1)).exists():
            children.counts["drivers started"] += 1
            self._driver = children.fork(
                "the driver",
                lambda: once_query.drive(options.spark, options.tasks, self._write, self._draws, self._directory),
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
                self._draw_kill(now)
            if now > self._kill_at:
                self._kill_driver()
            if now > self._progress + _PROGRESS_S:
                self.wrong.append(f"micro-batch {batches - 1} was not committed within {_PROGRESS_S:.0f} s")
                return False
            time.sleep(_TICK_S)
        return True

    def _draw_kill(self, now: float) -> None:
        """Draw whether the driver is killed in a new micro-batch, and when."""
        is_drawn, after = self._lots.random() < self._options.kill_driver / 5, self._lots.random() * _KILL_WITHIN_S
        if is_drawn:
            self._kill_at = now + after

    def _kill_driver(self) -> None:
        self._kill_at = math.inf
        for pid in descendants(self._driver):
            if "org.apache.spark.deploy.SparkSubmit" in _command(pid):
                with suppress(ProcessLookupError):
                    self.children.kill(pid, "driver")
                return

    def _count_events(self) -> None:
        """Count the attempts of tasks in Spark's own logs; a killed driver's lacks its last lines."""
        counts = self.children.counts
        for file in (self._directory / "events").iterdir():
            for line in file.read_text().splitlines():
                with suppress(json.JSONDecodeError):
                    self._count_event(json.loads(line), counts)

    def _count_event(self, event: dict[str, Any], counts: Counter[str]) -> None:
        if event["Event"] == "SparkListenerTaskStart":
            counts["attempts of tasks"] += 1
            counts["speculative attempts"] += event["Task Info"]["Speculative"]
        elif event["Event"] == "SparkListenerTaskEnd":
            counts["attempts that failed"] += event["Task Info"]["Failed"]
            counts["attempts that Spark killed: another one was first"] += event["Task Info"]["Killed"]
        elif event["Event"] == "SparkListenerExecutorRemoved":
            counts["executors that Spark lost"] += 1

    def end(self) -> None:
        """Wait until all that Spark has started is gone; then plan once more, as the next start of the query does."""
        name = self._write["kafka.shmaccum.name"]
        deadline = time.monotonic() + _END_S
        while left := [pid for pid in self._started() if pid != sender_pid(name)]:
            self.children.reap()
            if time.monotonic() > deadline:
                self.wrong += [f"a process is left: {_command(pid)[:200]}" for pid in left]
                break
            time.sleep(_TICK_S)
        settings = {key[len("kafka.") :]: value for key, value in self._write.items() if key.startswith("kafka.")}
        del settings["transactional.id"]
        _, problems = come_to_rest(name, settings, self.children)
        self.wrong += problems
        try:
            _exactly_once(self._write).plan(is_job=False)
        except Exception as error:
            self.wrong.append(f"the last plan failed: {error}")

    def _started(self) -> list[int]:
        """Return the pids below this process, but for the broker's."""
        brokers = {each for pid in self.children.before for each in (pid, *descendants(pid))}
        return [pid for pid in descendants(os.getpid()) if pid not in brokers]


def _exactly_once(write: dict[str, str]) -> Any:
    from shmaccum.spark.exactly_once import ExactlyOnce

    return ExactlyOnce.of({name.lower(): value for name, value in write.items()}, is_stream=True)


def _numbers(log: Path) -> int:
    """Return how many batches a log of the checkpoint has."""
    names = os.listdir(log) if log.exists() else []
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def main(options: argparse.Namespace) -> int:
    """Do a run; return the exit status."""
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
        from tools.stress.once_query import value_of
        from tools.stress.once_source import ROWS

        files = range(options.runs * options.tasks)
        expected = {value_of(file, row) for file in files for row in range(ROWS)}
        wrong = run.wrong + check(cluster.bootstrap_servers, name, expected)
        if wrong:
            kept = tempfile.mkdtemp(prefix="shmaccum-stress-kept-")
            shutil.copytree(directory, kept, dirs_exist_ok=True, symlinks=True)
            print(f"  The messages, the checkpoint and Spark's events are in {kept}")
    errors = {what: count for what, count in run.children.counts.items() if what.startswith("query failed")}
    counts = {what: count for what, count in run.children.counts.items() if what not in errors}
    return report(options, Found(counts, errors, wrong, time.monotonic() - began))
