"""The takeover of a lock after its holder's death.

It kills holders of a lock while other processes wait for it, and measures the time from the kill to the next
acquisition. In addition there can be churn (waiting processes are killed and replaced, a number per second) and traffic
(processes use the slab's other locks all the time).
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Final, NamedTuple

from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
from tools.bench.harness import Worker, print_table, spread
from tools.support.locks import held

NUMBER: Final = 5
"""The lock whose holders are killed."""
OTHER: Final = 6
PATIENCE_S: Final = 60.0
"""Limit for a takeover."""
_GEOMETRY: Final = Geometry(slot_size=64, slot_count=8, max_processes=64, max_topics=4, max_partitions=4)
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


class Case(NamedTuple):
    """The conditions under which holders are killed."""

    waiters: int
    churn: float = 0
    """Waiting processes killed per second."""
    busy: int = 0
    """Processes that use another lock all the time."""


CASES: Final = {
    "1 waiting": Case(1),
    "8 waiting": Case(8),
    "4 waiting, 15 others killed per second": Case(4, churn=15),
    "4 waiting, 50 others killed per second": Case(4, churn=50),
    "1 waiting, 2 busy with another lock": Case(1, busy=2),
}

_worker: Final = partial(Worker, context=_context)


def hold(link: Connection, name: str) -> None:
    """Acquire the lock, report that, and keep it."""
    slab = attach(name)
    with held(slab.locks[NUMBER], PATIENCE_S):
        link.send(None)
        signal.pause()


def take_turns(link: Connection, name: str) -> None:
    """Acquire the lock on each request, and report when."""
    slab = attach(name)
    while True:
        link.recv()
        with held(slab.locks[NUMBER], PATIENCE_S):
            had_ns = time.monotonic_ns()
        link.send(had_ns)


def keep_using(link: Connection, name: str, number: int) -> None:
    """Acquire a lock all the time."""
    slab = attach(name)
    while True:
        with held(slab.locks[number], PATIENCE_S):
            pass
        time.sleep(0.001)


@contextmanager
def churning(name: str, per_second: float) -> Iterator[None]:
    """Kill processes that wait for the lock, at random times, and replace them."""
    over = threading.Event()

    def churn() -> None:
        victims = [_worker(keep_using, name, NUMBER) for _ in range(4)]
        try:
            while not over.wait(random.expovariate(per_second)):
                victims.pop(0).kill()
                victims.append(_worker(keep_using, name, NUMBER))
        finally:
            for victim in victims:
                victim.kill()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measure(case: Case, rounds: int) -> list[float]:
    """Kill a holder in each round; return the milliseconds that each takeover took."""
    name = f"takeover-{uuid.uuid4().hex[:12]}"
    slab = attach(name, _GEOMETRY)
    times: list[float] = []
    try:
        with ExitStack() as cleanup:
            waiters = [_worker(take_turns, name) for _ in range(case.waiters)]
            for worker in waiters + [_worker(keep_using, name, OTHER) for _ in range(case.busy)]:
                cleanup.callback(worker.kill)
            if case.churn:
                cleanup.enter_context(churning(name, case.churn))
            for _ in range(rounds):
                slab.reap_dead()
                holder = _worker(hold, name)
                holder.link.recv()
                for waiter in waiters:
                    waiter.link.send(None)
                time.sleep(random.uniform(0.15, 0.25))
                killed_ns = time.monotonic_ns()
                holder.process.kill()
                if not wait([waiter.link for waiter in waiters], PATIENCE_S):
                    raise TimeoutError(f"no takeover within {PATIENCE_S:g} s: {case}")
                had_ns = min(waiter.link.recv() for waiter in waiters)
                times.append((had_ns - killed_ns) / 1e6)
                holder.kill()
        slab.reap_dead()
    finally:
        detach(slab)
    return times


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=20, help="deaths in each case")


def run(options: argparse.Namespace) -> None:
    rows = ((title, spread(measure(case, options.rounds))) for title, case in CASES.items())
    print_table("ms from the kill to the next holder", rows)
