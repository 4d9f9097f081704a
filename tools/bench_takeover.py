"""Measures the takeover of a lock after its holder's death: ``python -m tools.bench_takeover``.

It kills holders of a lock while other processes wait for it, and measures the time from the kill to the next
acquisition. In addition there can be churn (waiting processes are killed and replaced, a number per second) and traffic
(processes use the slab's other locks all the time).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
from tools.support.locks import held

NUMBER: Final = 5
"""The lock whose holders are killed."""
OTHER: Final = 6
PATIENCE_S: Final = 60.0
"""Limit for a takeover."""
_GEOMETRY: Final = Geometry(slot_size=64, slot_count=8, max_processes=64, max_topics=4, max_partitions=4)
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["shmaccum.shm.lifecycle"])


class Case(NamedTuple):
    """The conditions under which holders are killed."""

    waiters: int
    churn: float
    """Waiting processes killed per second."""
    busy: int
    """Processes that use another lock all the time."""

    def __str__(self) -> str:
        around = [f"{self.waiters} waiting"]
        around += [f"{self.churn:g} others killed per second"] * bool(self.churn)
        around += [f"{self.busy} busy with another lock"] * bool(self.busy)
        return ", ".join(around)


CASES: Final = [
    Case(waiters, churn, busy) for waiters, churn, busy in ((1, 0, 0), (8, 0, 0), (4, 15, 0), (4, 50, 0), (1, 0, 2))
]


class Worker:
    """A child process that repeats one operation until it is killed."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self.link, theirs = _context.Pipe()
        self._process = _context.Process(target=work, args=(theirs, *args), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self) -> None:
        """Kill it and wait until it is dead."""
        self._process.kill()
        self._process.join()
        self.link.close()


def hold(link: Connection, name: str) -> None:
    """Acquire the lock, report that, and keep it."""
    slab = attach(name)
    with held(slab.locks[NUMBER], PATIENCE_S):
        link.send(os.getpid())
        signal.pause()


def take_turns(link: Connection, name: str) -> None:
    """Acquire the lock on each request, and report when."""
    slab = attach(name)
    while True:
        link.recv()
        with held(slab.locks[NUMBER], PATIENCE_S):
            had_ns = time.monotonic_ns()
        link.send(had_ns)


def keep_waiting(link: Connection, name: str) -> None:
    """Wait for the lock all the time."""
    slab = attach(name)
    while True:
        with held(slab.locks[NUMBER], PATIENCE_S):
            pass
        time.sleep(0.001)


def be_busy(link: Connection, name: str) -> None:
    """Use another lock all the time."""
    slab = attach(name)
    while True:
        with held(slab.locks[OTHER], PATIENCE_S):
            pass
        time.sleep(0.001)


@contextmanager
def churning(name: str, per_second: float) -> Iterator[None]:
    """Kill processes that wait for the lock, at random times, and replace them."""
    over = threading.Event()

    def churn() -> None:
        victims = [Worker(keep_waiting, name) for _ in range(4)]
        try:
            while not over.wait(random.expovariate(per_second)):
                victims.pop(0).kill()
                victims.append(Worker(keep_waiting, name))
        finally:
            for victim in victims:
                victim.kill()

    thread = threading.Thread(target=churn)
    if per_second:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if per_second:
            thread.join()


def measure(case: Case, rounds: int) -> list[float]:
    """Kill a holder in each round; return the milliseconds that each takeover took."""
    name = f"takeover-{uuid.uuid4().hex[:12]}"
    slab = attach(name, _GEOMETRY)
    times: list[float] = []
    try:
        with ExitStack() as cleanup:

            def worker(work: Callable[..., None], *args: Any) -> Worker:
                worker = Worker(work, name, *args)
                cleanup.callback(worker.kill)
                return worker

            waiters = [worker(take_turns) for _ in range(case.waiters)]
            for _ in range(case.busy):
                worker(be_busy)
            cleanup.enter_context(churning(name, case.churn))
            for _ in range(rounds):
                slab.reap_dead()
                holder = Worker(hold, name)
                pid = holder.link.recv()
                for waiter in waiters:
                    waiter.link.send(None)
                time.sleep(random.uniform(0.15, 0.25))
                killed_ns = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                first = next(iter(wait([waiter.link for waiter in waiters], PATIENCE_S)), None)
                if first is None:
                    raise TimeoutError(f"no takeover within {PATIENCE_S:g} s: {case}")
                had_ns = min(waiter.link.recv() for waiter in waiters)
                times.append((had_ns - killed_ns) / 1e6)
                holder.kill()
        slab.reap_dead()
    finally:
        detach(slab)
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_takeover", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="deaths per case (20)")
    options = parser.parse_args(arguments)
    print(
        f"{'milliseconds from the kill to the next holder':<68} {'least':>6} {'median':>6} {'9 of 10':>7} {'most':>6}"
    )
    for case in CASES:
        times = sorted(measure(case, options.rounds))
        nine = times[max(0, -(-len(times) * 9 // 10) - 1)]
        print(f"{case!s:<68} {times[0]:6.0f} {statistics.median(times):6.0f} {nine:7.0f} {times[-1]:6.0f}", flush=True)


if __name__ == "__main__":
    main()
