"""Runs all points, several at a time, in processes forked from this one."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import random
import shutil
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final, NoReturn

from shmaccum.shm import names
from tools.step import stores
from tools.step.aftermath import survive
from tools.step.operation import Operation
from tools.step.point import TO_THE_END, Outcome, Plan, run_point
from tools.step.settings import config_of
from tools.step.survivor import Survivor
from tools.step.victim import BOUND_S
from tools.support.processes import die_with_parent

Progress = Callable[[int, int], object]
"""Called with the number of points done, and of all points."""
_MORE: Final = 10
"""How many stores more than the first victim the second one can have: it takes over locks, and rebuilds."""


class Way(Enum):
    """How operations end."""

    KILL = "killed"
    STOP = "stopped"
    PAIRS = "killed or stopped, with a second one killed after it,"


@dataclass
class Findings:
    """The results of one operation's points, in order of completion; and how many steps of each kind it has."""

    operation: Operation
    instructions: int = 0
    stores: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def survived(self) -> int:
        """Number of points without violations."""
        return len(self.outcomes) - len(self.failed)

    @property
    def holding(self) -> int:
        """Number of points at which a stopped victim held what others needed."""
        return sum(outcome.named > 0 for outcome in self.outcomes)

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.problems]


class Harness:
    """Runs points, ``jobs`` at a time. Use it as a context manager: it leaves nothing behind in any case."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._prefix = f"step{os.getpid()}-"
        self._workers: list[_Worker] = []
        self._started = 0

    def __enter__(self) -> Harness:
        # In memory: these tests do not cover the death of the host.
        self._directory = Path(tempfile.mkdtemp(prefix="step-", dir=names.SHM_DIRECTORY))
        self._library = stores.build(self._directory)
        gc.collect()  # else victims would watch semaphores that this process has closed
        _warm_up(f"{self._prefix}warm-up", self._directory / "warm-up")
        return self

    def __exit__(self, *error: object) -> None:
        self._end_workers()
        shutil.rmtree(self._directory)
        ours = f"{names.PREFIX}{self._prefix}", f"sem.{names.PREFIX}{self._prefix}"
        for entry in os.listdir(names.SHM_DIRECTORY):  # of failed points
            if entry.startswith(ours):
                Path(names.SHM_DIRECTORY, entry).unlink(missing_ok=True)

    def run(
        self, operations: Sequence[Operation], progress: Progress, sample: int = 0, seed: int = 0, way: Way = Way.KILL
    ) -> list[Findings]:
        """Run operations to their ends to count their steps, then end them at each step or at a sample.

        Args:
            operations: what to run.
            progress: called after each point.
            sample: how many steps of each operation to take; 0 for all.
            seed: of the choice.
            way: how they end.
        """
        findings = [Findings(operation) for operation in operations]
        self._operations = {operation.name: operation for operation in operations}
        kinds = (True, False) if way is Way.KILL else (True,)
        self._run_all(((of, Plan(TO_THE_END, by_stores)) for of in findings for by_stores in kinds), progress)
        for of in findings:
            steps = {outcome.plan.by_stores: outcome.steps for outcome in of.outcomes}
            of.stores, of.instructions = steps[True], steps.get(False, 0)
            if not of.stores:
                of.outcomes[0].problems.append("it stores nothing, so nothing was tested")
        self._run_all(((of, plan) for of in findings for plan in _choice(of, way, sample, seed)), progress)
        self._end_workers()
        return findings

    def _end_workers(self) -> None:
        while self._workers:
            self._workers.pop().end()

    def _run_all(self, points: Iterable[tuple[Findings, Plan]], progress: Progress) -> None:
        waiting = deque(points)
        done, total = 0, len(waiting)
        while waiting or any(worker.busy_with for worker in self._workers):
            while len(self._workers) < self._jobs and waiting:
                self._workers.append(_Worker(self._operations, self._library))
            for worker in self._workers:
                if waiting and worker.busy_with is None:
                    self._started += 1
                    name = f"{self._prefix}{self._started:07}"  # none begins with another
                    worker.start(*waiting.popleft(), name, self._directory / str(self._started))
            busy = [worker for worker in self._workers if worker.busy_with]
            ready = wait([worker.link for worker in busy], 1.0)
            for worker in busy:
                if worker.link in ready or worker.is_overdue():
                    done += 1
                    if worker.finish():
                        # Its process can have more of its problem, so it runs no further point.
                        self._workers.remove(worker)
                        worker.end()
                    progress(done, total)


class _Worker:
    """A process that runs points, one at a time."""

    def __init__(self, operations: Mapping[str, Operation], library: ctypes.CDLL) -> None:
        self.link, theirs = Pipe()
        self.busy_with: tuple[Findings, Plan] | None = None
        self._deadline_s = 0.0
        self._pid = os.fork()
        if not self._pid:
            self.link.close()
            _work(theirs, operations, library)
        theirs.close()

    def start(self, findings: Findings, plan: Plan, name: str, directory: Path) -> None:
        self.busy_with = findings, plan
        self._deadline_s = time.monotonic() + 2 * BOUND_S
        self.link.send((findings.operation.name, plan, name, directory))

    def is_overdue(self) -> bool:
        """Return whether its process must be stuck: it bounds its own time, which is half of this."""
        return time.monotonic() > self._deadline_s

    def finish(self) -> bool:
        """Add the outcome of its point to the findings; return whether there are problems."""
        assert self.busy_with is not None
        (findings, plan), self.busy_with = self.busy_with, None
        outcome = Outcome(plan, problems=["the survivor died, or was held up for ever"])
        with contextlib.suppress(EOFError):
            if self.link.poll():
                outcome = self.link.recv()
        findings.outcomes.append(outcome)
        return bool(outcome.problems)

    def end(self) -> None:
        """Kill its process."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.link.close()


def _work(link: Connection, operations: Mapping[str, Operation], library: ctypes.CDLL) -> NoReturn:
    """Run the points that the harness requests."""
    die_with_parent()
    logging.disable()  # some operations are about failing batches
    gc.freeze()  # else every victim would copy all pages that the collector touches
    try:
        while True:
            operation, plan, slab_name, directory = link.recv()
            link.send(run_point(operations[operation], plan, slab_name, directory, library))
    finally:
        os._exit(1)


def _choice(of: Findings, way: Way, sample: int, seed: int) -> list[Plan]:
    """Return what to do to an operation; the choice does not depend on the other operations."""
    steps = range(of.stores)
    if way is Way.PAIRS:
        others = range(of.stores + _MORE)
        plans = [Plan(step, True, stops, other) for stops in (False, True) for step in steps for other in others]
    else:
        plans = [Plan(step, True, way is Way.STOP) for step in steps]
    kinds = [plans, [Plan(step, by_stores=False) for step in range(of.instructions)]]
    if sample:
        chance = f"{seed} {of.operation.name}"
        kinds = [random.Random(chance).sample(each, min(sample, len(each))) for each in kinds]
    return [plan for each in kinds for plan in each]


def _warm_up(name: str, directory: Path) -> None:
    """Run once in this process what points run, so that their processes have imported everything."""
    import pyarrow as pa

    import shmaccum.accumulator.append.column_appender
    import shmaccum.producer.column_path  # noqa: F401

    pa.record_batch({"value": ["warm"]})
    directory.mkdir()
    survivor = Survivor(config_of(name, directory, {"compression.type": "gzip"}))
    survivor.settle_in()
    problems: list[str] = []
    survive(survivor, (), problems)
    if problems:
        raise RuntimeError(f"the warm-up, without a death, found problems: {problems}")
