"""The takeover of a lock after its holder's death: the time from the kill to the next acquisition.

It kills holders of a lock while other processes wait for it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import time
import uuid
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Final

from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
from tools.bench.harness import Worker, print_table, spread
from tools.support.locks import held

WAITING: Final = (1, 8)
_NUMBER: Final = 5
"""The lock whose holders are killed."""
_PATIENCE_S: Final = 60.0
"""Limit for a takeover."""
_GEOMETRY: Final = Geometry(slot_size=64, slot_count=8, max_processes=64, max_topics=4, max_partitions=4)
_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])
_worker: Final = partial(Worker, context=_context)


def _hold(link: Connection, name: str) -> None:
    """Acquire the lock, report that, and keep it."""
    slab = attach(name)
    with held(slab.locks[_NUMBER], _PATIENCE_S):
        link.send(None)
        signal.pause()


def _take_turns(link: Connection, name: str) -> None:
    """Acquire the lock on each request, and report when."""
    slab = attach(name)
    while True:
        link.recv()
        with held(slab.locks[_NUMBER], _PATIENCE_S):
            had_ns = time.monotonic_ns()
        link.send(had_ns)


def measure(waiting: int, rounds: int) -> list[float]:
    """Kill a holder in each round; return the milliseconds that each takeover took."""
    name = f"takeover-{uuid.uuid4().hex[:12]}"
    slab = attach(name, _GEOMETRY)
    times: list[float] = []
    with ExitStack() as cleanup:
        cleanup.callback(detach, slab)
        cleanup.callback(slab.reap_dead)
        waiters = [_worker(_take_turns, name) for _ in range(waiting)]
        for waiter in waiters:
            cleanup.callback(waiter.kill)
        for _ in range(rounds):
            slab.reap_dead()
            holder = _worker(_hold, name)
            holder.link.recv()
            for waiter in waiters:
                waiter.link.send(None)
            time.sleep(random.uniform(0.15, 0.25))
            killed_ns = time.monotonic_ns()
            holder.process.kill()
            if not wait([waiter.link for waiter in waiters], _PATIENCE_S):
                raise TimeoutError(f"no takeover within {_PATIENCE_S:g} s, with {waiting} waiting")
            times.append((min(waiter.link.recv() for waiter in waiters) - killed_ns) / 1e6)
            holder.kill()
    return times


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=20, help="deaths in each case")


def run(options: argparse.Namespace) -> None:
    rows = ((f"{waiting} waiting", spread(measure(waiting, options.rounds))) for waiting in WAITING)
    print_table("ms from the kill to the next holder", rows)
