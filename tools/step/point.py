"""One point: a victim that dies at a step, and a survivor that checks the remains."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from shmaccum.accumulator.state.accumulator_state import slab_geometry
from shmaccum.config import ProducerConfig
from shmaccum.errors import LockTimeoutError
from tools.step.account import Account, Told
from tools.step.aftermath import survive, work_beside
from tools.step.operation import Operation
from tools.step.settings import PATIENCE_S, config_of
from tools.step.stores import Stores, place_of
from tools.step.survivor import Survivor
from tools.step.victim import BOUND_S, Victim, be_victim

TO_THE_END: Final = -1
"""The step of a victim that is killed after its whole operation."""
NEVER: Final = (1 << 64) - 1
_LOOK_S: Final = 0.0005


class Plan(NamedTuple):
    """What to do to an operation.

    Attributes:
        step: before which it dies, or `TO_THE_END`.
        by_stores: whether its steps are stores, and not bytecode instructions.
        stops: whether it is stopped there instead, for a while.
        other: the store before which a second victim dies while the first one is dead or stopped; None without one.
    """

    step: int
    by_stores: bool = True
    stops: bool = False
    other: int | None = None

    def __str__(self) -> str:
        what = "store" if self.by_stores else "instruction"
        return f"{what} {self.step}" + ("" if self.other is None else f", the second one's store {self.other}")


@dataclass
class Outcome:
    """The result of a point.

    Attributes:
        plan: what was to happen.
        steps: number of steps that it ran.
        place: where it died.
        recovery_ms: from its death until all checks and all operations were done.
        named: how many calls of the survivor had to wait for what a stopped victim holds.
        problems: the violations.
    """

    plan: Plan
    steps: int = 0
    place: str = ""
    recovery_ms: float = 0.0
    named: int = 0
    problems: list[str] = field(default_factory=list)


def run_point(operation: Operation, plan: Plan, slab_name: str, directory: Path, library: ctypes.CDLL) -> Outcome:
    """Run one point in this process; do not use the process again if there are problems.

    Args:
        operation: the victim's.
        plan: what to do to it.
        slab_name: of a slab that there is not.
        directory: for the log; created and removed here.
        library: from `tools.step.stores.build`.
    """
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(BOUND_S)
    outcome = Outcome(plan)
    directory.mkdir()
    try:
        _run(operation, outcome, config_of(slab_name, directory, operation.settings), library)
    except BaseException:
        outcome.problems.append(traceback.format_exc())
    finally:
        signal.alarm(0)
        shutil.rmtree(directory)
    return outcome


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not done after {BOUND_S} s")


def _run(operation: Operation, outcome: Outcome, config: ProducerConfig, library: ctypes.CDLL) -> None:
    step, by_stores, stops, other = outcome.plan
    end = signal.SIGSTOP if stops else signal.SIGKILL
    first = VictimProcess(operation, config, step, end, library, by_stores=by_stores)
    victims = [first]
    if other is not None:
        second = VictimProcess(operation, config, other, signal.SIGKILL, library, by_stores=True, is_second=True)
        victims.append(second)
    survivor = Survivor(config, refusing=operation.refusing)
    if not operation.alone:
        survivor.settle_in()
        operation.prepare(survivor)
        if stops or other is not None:
            survivor.slab.lock_timeout_s = PATIENCE_S
    for victim in victims:
        victim.go_on()
    if other is None:
        meanwhile = _outlive(first, operation, survivor, outcome, stops=stops)
    else:
        meanwhile = None
        _outlive_both(first, second, survivor)
    died = time.monotonic()
    survivor.victim_lives = False
    if meanwhile is not None:
        meanwhile(survivor)
    outcome.steps, outcome.place = first.told.steps, place_of(first.told.place, slab_geometry(config))
    for victim in victims:
        # An error of the second one may say that the first one, which was stopped, holds what it needs.
        allowed = f"process {first.told.pid} holds it" if victim is not first and stops else None
        outcome.problems += victim.wait(allowed)
    survive(survivor, [victim.told for victim in victims], outcome.problems)
    outcome.recovery_ms = (time.monotonic() - died) * 1000


def _outlive(
    victim: VictimProcess, operation: Operation, survivor: Survivor, outcome: Outcome, *, stops: bool
) -> Callable[[Survivor], object] | None:
    """Do what the survivor does until the victim is dead; return what it does again then, if anything."""
    meanwhile = operation.meanwhile
    victim.go_on()
    while victim.told.read(None if meanwhile is None else _LOOK_S):
        if stops and victim.is_at_a_store():
            stops = False
            victim.wait_until_stopped()
            outcome.named = work_beside(survivor, victim.told.pid, outcome.problems)
            victim.wake()
            if meanwhile is None and survivor.sender is not None:
                meanwhile = Survivor.run_once  # the victim can need the memory of what was appended beside it
        if meanwhile is not None:
            with suppress(LockTimeoutError) if stops else nullcontext():  # it can be about to report its stop
                meanwhile(survivor)
    return meanwhile


def _outlive_both(first: VictimProcess, second: VictimProcess, survivor: Survivor) -> None:
    """Have the second victim die while the first one is dead or stopped; let that one go on."""
    for victim in (first, second):
        while victim.told.read() and not victim.told.is_ready:
            pass
    first.go_on()
    is_stopped = False
    while not is_stopped and first.told.read():
        is_stopped = first.end is signal.SIGSTOP and first.is_at_a_store()
    if is_stopped:
        first.wait_until_stopped()
    second.go_on()
    while second.told.read():
        pass
    if is_stopped:
        first.wake()
    while first.told.read(_LOOK_S):
        if survivor.sender is not None:
            survivor.run_once()


class VictimProcess:
    """A victim's process, as the survivor sees it.

    It waits twice for `go_on`: until the scene is set, and before the operation itself.

    Args:
        operation: what it runs.
        config: the slab's.
        step: before which it ends.
        end: how it ends there: SIGKILL, or SIGSTOP.
        library: from `tools.step.stores.build`.
        by_stores: whether its steps are stores.
        is_second: whether it runs beside another victim, and is not to wait for long.
    """

    def __init__(
        self,
        operation: Operation,
        config: ProducerConfig,
        step: int,
        end: signal.Signals,
        library: ctypes.CDLL,
        *,
        by_stores: bool,
        is_second: bool = False,
    ) -> None:
        self.end: Final = end
        account, theirs = os.pipe()
        may_go_on, self._go_on = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            victim = Victim(config, Account(theirs), refusing=operation.refusing, is_second=is_second)
            at = NEVER if step == TO_THE_END else step
            name = config.slab_name(os.geteuid())
            stores = Stores(library, name, slab_geometry(config).slots, at, end, theirs) if by_stores else at
            be_victim(operation, victim, stores, lambda: os.read(may_go_on, 1))
        os.close(theirs)
        os.close(may_go_on)
        self.told = Told(account)

    def go_on(self) -> None:
        # Not by the end of the file: another victim, forked later, has a copy of the descriptor.
        with suppress(BrokenPipeError):  # it has ended before, as its status shows
            os.write(self._go_on, b"!")

    def is_at_a_store(self) -> bool:
        """Return whether it has reported that it ends at a store."""
        return self.told.place.startswith("store ")

    def wait_until_stopped(self) -> None:
        """Wait until the process is stopped that is at the store: it can be the victim's child."""
        stat = Path(f"/proc/{self.told.pid}/stat")
        while not stat.read_text().rpartition(") ")[2].startswith("T"):
            time.sleep(_LOOK_S)

    def wake(self) -> None:
        """End a stop."""
        os.kill(self.told.pid, signal.SIGCONT)

    def wait(self, allowed: str | None) -> list[str]:
        """Wait for its end; return what is wrong with that. An error may say what is allowed."""
        os.close(self._go_on)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if status == -signal.SIGKILL or (allowed is not None and allowed in self.told.error):
            return []
        return [f"the victim was not killed, status {status}: {self.told.error or 'stuck'}"]
