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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final, NoReturn

from shmaccum.shm import names
from tools.step import stores
from tools.step.aftermath import survive
from tools.step.operation import Operation
from tools.step.point import TO_THE_END, Outcome, Plan, Point, run_point
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
    """The results of one operation's points.

    Attributes:
        operation: which one.
        instructions: number of those that are steps.
        stores: number of its stores.
        outcomes: of its points, in order of completion.
    """

    operation: Operation
    instructions: int = 0
    stores: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def survived(self) -> int:
        """Number of points without violations."""
        return sum(not outcome.problems for outcome in self.outcomes)

    @property
    def holding(self) -> int:
        """Number of points at which a stopped victim held what others needed."""
        return sum(outcome.named > 0 for outcome in self.outcomes)

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes with problems."""
        return [outcome for outcome in self.outcomes if outcome.problems]


class Harness:
    """Runs points. Use it as a context manager: it leaves nothing behind in any case.

    Args:
        jobs: points at a time.
    """

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

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end_workers()
        shutil.rmtree(self._directory)
        _remove_slabs(self._prefix)

    def run(
        self,
        operations: Sequence[Operation],
        progress: Progress,
        sample: int = 0,
        seed: int = 0,
        way: Way = Way.KILL,
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
            for to_the_end in of.outcomes:
                if to_the_end.plan.by_stores:
                    of.stores = to_the_end.steps
                else:
                    of.instructions = to_the_end.steps
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
        while waiting or any(worker.busy for worker in self._workers):
            while len(self._workers) < self._jobs and waiting:
                self._workers.append(_Worker(self._operations, self._library))
            for worker in self._workers:
                if waiting and not worker.busy:
                    self._started += 1
                    name = f"{self._prefix}{self._started:07}"  # none begins with another
                    of, plan = waiting.popleft()
                    worker.start(of, Point(of.operation.name, plan, name, self._directory / str(self._started)))
            for findings, outcome in self._finished():
                findings.outcomes.append(outcome)
                done += 1
                progress(done, total)

    def _finished(self) -> Iterator[tuple[Findings, Outcome]]:
        """Wait, and yield the outcomes of points that have ended."""
        busy = [worker for worker in self._workers if worker.busy]
        ready = wait([worker.link for worker in busy], 1.0)
        for worker in busy:
            if worker.link in ready or worker.is_overdue():
                findings, outcome = worker.finish()
                if outcome.problems:
                    # Its process can have more of its problem, so it runs no further point.
                    self._workers.remove(worker)
                    worker.end()
                yield findings, outcome


class _Worker:
    """A process that runs points, one at a time."""

    def __init__(self, operations: dict[str, Operation], library: ctypes.CDLL) -> None:
        self.link, theirs = Pipe()
        self._point: tuple[Findings, Plan] | None = None
        self._deadline_s = 0.0
        self._pid = os.fork()
        if not self._pid:
            self.link.close()
            _work(theirs, operations, library)
        theirs.close()

    @property
    def busy(self) -> bool:
        """Whether it runs a point."""
        return self._point is not None

    def start(self, findings: Findings, point: Point) -> None:
        """Start a point."""
        self._point = findings, point.plan
        self._deadline_s = time.monotonic() + 2 * BOUND_S
        self.link.send(point)

    def is_overdue(self) -> bool:
        """Return whether its process must be stuck: it bounds its own time, which is half of this."""
        return time.monotonic() > self._deadline_s

    def finish(self) -> tuple[Findings, Outcome]:
        """Return the outcome of its point."""
        assert self._point is not None
        (findings, plan), self._point = self._point, None
        with contextlib.suppress(EOFError):
            if self.link.poll():
                return findings, self.link.recv()
        return findings, Outcome(plan, problems=["the survivor died, or was held up for ever"])

    def end(self) -> None:
        """Kill its process."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.link.close()


def _work(link: Connection, operations: dict[str, Operation], library: ctypes.CDLL) -> NoReturn:
    """Run the points that the harness requests."""
    die_with_parent()
    logging.disable()  # some operations are about failing batches
    gc.freeze()  # else every victim would copy all pages that the collector touches
    try:
        while True:
            point = link.recv()
            link.send(run_point(operations[point.operation], point, library))
    finally:
        os._exit(1)


def _choice(of: Findings, way: Way, sample: int, seed: int) -> Sequence[Plan]:
    """Return what to do to an operation; the choice does not depend on the other operations."""
    steps = range(of.stores)
    if way is Way.PAIRS:
        others = range(of.stores + _MORE)
        plans = [Plan(step, True, stops, other) for stops in (False, True) for step in steps for other in others]
    else:
        plans = [Plan(step, True, way is Way.STOP) for step in steps]
    return _some(plans, of, sample, seed) + _some(
        [Plan(step, False) for step in range(of.instructions)], of, sample, seed
    )


def _some(plans: list[Plan], of: Findings, sample: int, seed: int) -> list[Plan]:
    return random.Random(f"{seed} {of.operation.name}").sample(plans, min(sample, len(plans))) if sample else plans


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


def _remove_slabs(prefix: str) -> None:
    """Remove the slabs that failed points have left."""
    ours = f"{names.PREFIX}{prefix}", f"sem.{names.PREFIX}{prefix}"
    for entry in os.listdir(names.SHM_DIRECTORY):
        if entry.startswith(ours):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{names.SHM_DIRECTORY}/{entry}")
