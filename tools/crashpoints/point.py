"""One point: a victim that dies at a step, and a survivor that checks the remains."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
import traceback
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from shmaccum.accumulator.state.accumulator_state import slab_geometry
from shmaccum.errors import LockTimeoutError
from tools.crashpoints.account import Account, Reader
from tools.crashpoints.aftermath import survive
from tools.crashpoints.beside import PATIENCE_S, wait_until_stopped, work_beside
from tools.crashpoints.operation import Operation
from tools.crashpoints.settings import config_of
from tools.crashpoints.stores import Stores, place_of
from tools.crashpoints.survivor import Survivor
from tools.crashpoints.victim import BOUND_S, Victim, be_victim

TO_THE_END: Final = -1
"""The step of a victim that is killed after its whole operation."""
NEVER: Final = (1 << 64) - 1

_LOOK_S: Final = 0.0005


@dataclass
class Outcome:
    """The result of a point.

    Attributes:
        step: at which the victim should die.
        steps: number of steps that it ran.
        place: where it died.
        recovery_ms: from its death until all checks and all operations were done.
        named: how many calls of the survivor had to wait for what a stopped victim holds.
        problems: the violations; empty if there are none.
    """

    step: int
    steps: int = 0
    place: str = ""
    recovery_ms: float = 0.0
    named: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Point:
    """What to do to a victim.

    Attributes:
        operation: the name of what it runs.
        step: before which it dies, or `TO_THE_END`.
        stops: whether it is stopped there instead, until the survivor has worked for a while.
        name: of the slab.
        directory: for the log; created and removed here.
    """

    operation: str
    step: int
    stops: bool
    name: str
    directory: Path


def run_point(operation: Operation, point: Point, library: ctypes.CDLL) -> Outcome:
    """Run one point in this process; do not use the process again if there are problems.

    Args:
        operation: the victim's.
        point: the point.
        library: from `tools.crashpoints.stores.build`.
    """
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(BOUND_S)
    outcome = Outcome(point.step)
    point.directory.mkdir()
    try:
        _run(operation, outcome, point, library)
    except BaseException:
        outcome.problems.append(traceback.format_exc())
    finally:
        signal.alarm(0)
        shutil.rmtree(point.directory)
    return outcome


def _run(operation: Operation, outcome: Outcome, point: Point, library: ctypes.CDLL) -> None:
    config = config_of(point.name, point.directory, operation.settings)
    account, account_of_victim = os.pipe()
    begin_victim, begin = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(begin)
        victim = Victim(config, Account(account_of_victim), refusing=operation.refusing)
        at = NEVER if point.step == TO_THE_END else point.step
        end = signal.SIGSTOP if point.stops else signal.SIGKILL
        stores = Stores(library, point.name, slab_geometry(config).slots, at, end, account_of_victim)
        be_victim(operation, victim, stores, lambda: os.read(begin_victim, 1), stops=point.stops)
    os.close(account_of_victim)
    os.close(begin_victim)
    survivor = Survivor(config, refusing=operation.refusing)
    if not operation.alone:
        survivor.settle_in()
        operation.prepare(survivor)
        if point.stops:
            survivor.slab.lock_timeout_s = PATIENCE_S
    os.close(begin)
    reader = Reader(account)
    told = reader.told
    is_to_stop, meanwhile = point.stops, operation.meanwhile
    while reader.read(None if meanwhile is None else _LOOK_S):
        if is_to_stop and told.place.startswith("store "):
            is_to_stop = False
            wait_until_stopped(told.pid)
            outcome.named = work_beside(survivor, told.pid, outcome.problems)
            os.kill(told.pid, signal.SIGCONT)
            if meanwhile is None and survivor.sender is not None:
                meanwhile = Survivor.run_once  # the victim can need the memory of what was appended beside it
        if meanwhile is not None:
            with suppress(LockTimeoutError) if is_to_stop else nullcontext():  # it can be about to report its stop
                meanwhile(survivor)
    status = os.waitpid(pid, 0)[1]
    died = time.monotonic()
    survivor.victim_lives = False
    if meanwhile is not None:
        meanwhile(survivor)
    outcome.steps, outcome.place = told.steps, place_of(told.place, slab_geometry(config))
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        outcome.problems.append(f"the victim was not killed, status {status}: {told.error or 'stuck'}")
    survive(survivor, told, outcome.problems)
    outcome.recovery_ms = (time.monotonic() - died) * 1000


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not done after {BOUND_S} s")
