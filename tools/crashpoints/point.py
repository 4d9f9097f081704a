"""One point: a victim that dies at a step, and a survivor that checks the remains."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from shmaccum.accumulator.state.accumulator_state import slab_geometry
from tools.crashpoints.account import Account, read_account
from tools.crashpoints.aftermath import survive
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
        problems: the violations; empty if there are none.
    """

    step: int
    steps: int = 0
    place: str = ""
    recovery_ms: float = 0.0
    problems: list[str] = field(default_factory=list)


def run_point(operation: Operation, step: int, name: str, directory: Path, library: ctypes.CDLL) -> Outcome:
    """Run one point in this process; do not use the process again if there are problems.

    Args:
        operation: the victim's.
        step: before which it dies, or `TO_THE_END`.
        name: of the slab.
        directory: for the log; created and removed here.
        library: from `tools.crashpoints.stores.build`.
    """
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(BOUND_S)
    outcome = Outcome(step)
    directory.mkdir()
    try:
        _run(operation, outcome, name, directory, library)
    except BaseException:
        outcome.problems.append(traceback.format_exc())
    finally:
        signal.alarm(0)
        shutil.rmtree(directory)
    return outcome


def _run(operation: Operation, outcome: Outcome, name: str, directory: Path, library: ctypes.CDLL) -> None:
    config = config_of(name, directory, operation.settings)
    account, account_of_victim = os.pipe()
    begin_victim, begin = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(begin)
        victim = Victim(config, Account(account_of_victim), refusing=operation.refusing)
        at = NEVER if outcome.step == TO_THE_END else outcome.step
        stores = Stores(library, name, slab_geometry(config).slots, at, account_of_victim)
        be_victim(operation, victim, stores, lambda: os.read(begin_victim, 1))
    os.close(account_of_victim)
    os.close(begin_victim)
    survivor = Survivor(config, refusing=operation.refusing)
    if not operation.alone:
        survivor.settle_in()
        operation.prepare(survivor)
    os.close(begin)
    status = _outlive(pid, operation, survivor)
    died = time.monotonic()
    told = read_account(account)
    outcome.steps, outcome.place = told.steps, place_of(told.place, slab_geometry(config))
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        outcome.problems.append(f"the victim was not killed, status {status}: {told.error or 'stuck'}")
    survive(survivor, told, outcome.problems)
    outcome.recovery_ms = (time.monotonic() - died) * 1000


def _outlive(pid: int, operation: Operation, survivor: Survivor) -> int:
    """Wait for the victim's end; return its status."""
    if operation.meanwhile is None:
        return os.waitpid(pid, 0)[1]
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        survivor.victim_lives = not ended
        operation.meanwhile(survivor)
        if ended:
            return status
        time.sleep(_LOOK_S)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not done after {BOUND_S} s")
