"""A run with producers of our own: the plan, the load and the kills, the end, the log against the accounts.

The plan says which processes are killed, terminated or stopped, and when, from seed and rates only.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from shmaccum.errors import SlabError
from shmaccum.shm.lifecycle import look
from tools.stress.accounting import Verdict, all_accounts, judge
from tools.stress.anyrun import DELIVERY_PATIENCE_S, TICK_S, AnyRun
from tools.stress.options import Options
from tools.stress.producers import Fleet, Load
from tools.stress.soak import EVERY_S, Soak
from tools.support.processes import is_descendant
from tools.support.reading import Stored
from tools.support.slabcheck import figures, sender_pid, shared_files

SENDER: Final = -1
"""The victim that is the sender; producers are numbered from 0."""
LONGEST_STOP_S: Final = 1.0


class Deed(Enum):
    """An action on a victim."""

    KILL = "kill"
    STOP = "stop"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Event:
    """One action.

    Attributes:
        at_s: seconds since the beginning.
        victim: number of a producer's place, or `SENDER`.
        deed: kill, terminate, or stop.
        duration_s: of a stop, until it is continued.
    """

    at_s: float
    victim: int
    deed: Deed
    duration_s: float = 0.0


def make_plan(options: Options, spared: int = 0) -> list[Event]:
    """Return the events in order of time: of each kind as many as its rate requires, at random times.

    Args:
        options: equal ones, with an equal seed, make equal plans. Producers and the sender are stopped, and asked to
            end, equally often.
        spared: number of first producers that are stopped, but never killed.
    """
    chance, producers = random.Random(options.seed), options.producers
    events = []
    for rate, deed, first, last in (
        (options.kill_producers if spared < producers else 0, Deed.KILL, spared, producers),
        (options.kill_sender, Deed.KILL, SENDER, SENDER + 1),
        (options.stop, Deed.STOP, SENDER, producers),
        (options.terminate, Deed.TERMINATE, SENDER, producers),
    ):
        for at_s in [chance.uniform(0, options.seconds) for _ in range(round(rate * options.seconds))]:
            duration_s = chance.uniform(0.02, LONGEST_STOP_S) if deed is Deed.STOP else 0.0
            events.append(Event(at_s, chance.randrange(first, last), deed, duration_s))
    return sorted(events, key=lambda event: event.at_s)


_LONGEST_TICK_S: Final = 0.2
"""If this process is delayed for longer, so is the run; else all missed actions would happen at once."""
_START_PATIENCE_S: Final = 120.0
_LIVE_LONG: Final = 2
"""Producers that a soak does not kill."""
_CUT_SHORT: Final = 2
"""Senders in a row that may end before one has delivered anything: a producer gives up after three starts."""


class Run(AnyRun):
    """A run with producers of our own."""

    def __init__(self, options: Options, directory: Path, to: Mapping[str, object], log_dir: Path) -> None:
        super().__init__(options, directory, to, log_dir)
        self._fleet = Fleet(self.children, Load(self.settings, self.accounts, options))
        self._soak = self.outcome.soak = Soak() if options.soak else None
        self._next_sample_s = 0.0
        self._delivered = 0
        self._cut_short = 0
        self._appended = 0
        self._moved_s = 0.0
        self._next_line_s = 0.0

    def work(self) -> None:
        """Append and kill by the plan; then flush and close."""
        options, fleet, outcome = self.options, self._fleet, self.outcome
        plan = make_plan(options, min(_LIVE_LONG, options.producers) if options.soak else 0)
        for place in range(options.producers):
            fleet.start(place)
        self._await_load()
        started = looked = time.monotonic()
        at_s = 0.0
        while at_s < options.seconds or plan:
            now = time.monotonic()
            at_s += min(now - looked, _LONGEST_TICK_S)
            looked = now
            while plan and plan[0].at_s <= at_s:
                self._carry_out(plan.pop(0), now)
            self.children.continue_due(now)
            for place in fleet.reap():
                fleet.start(place)
            self._watch(now, now - started)
            self._take_samples(now)
            time.sleep(TICK_S)
        outcome.seconds = time.monotonic() - started
        if outcome.longest_stall_s > options.max_stall:
            outcome.problems.append(f"no producer appended anything for {outcome.longest_stall_s:.1f} s")
        if self._soak is not None:
            outcome.problems += self._soak.problems()
        fleet.finish(DELIVERY_PATIENCE_S)

    def judge(self, records: Iterator[Stored]) -> Verdict:
        """Compare the log with the accounts."""
        accounts = all_accounts(self.accounts)
        verdict = judge(accounts, records, self.options.partitions)
        for account in accounts:
            account.close()
        return verdict

    def _await_load(self) -> None:
        """Wait until every producer has appended something, because their start takes any time on a slow machine."""
        fleet, deadline = self._fleet, time.monotonic() + _START_PATIENCE_S
        while fleet.look() == 0 or not all(member.appended for member in fleet.members.values()):
            if time.monotonic() > deadline:
                self.outcome.problems.append(f"not every producer has appended anything in {_START_PATIENCE_S:.0f} s")
                return
            for place in fleet.reap():
                fleet.start(place)
            time.sleep(TICK_S)

    def _carry_out(self, event: Event, now_s: float) -> None:
        """Do an action. It is skipped if its victim is missing: if it waited, no sender would ever get to work.

        Skipped kills are counted.
        """
        children = self.children
        if event.victim == SENDER:
            what, pid = "sender", sender_pid(self.name)
        else:
            what, pid = "producer", self._fleet.members[event.victim].pid
        if not pid or not is_descendant(pid) or children.is_dying(pid):
            children.counts[f"{what}s not there"] += event.deed is Deed.KILL
        elif event.victim == SENDER and event.deed is not Deed.STOP and not self._may_end_sender():
            children.counts["senders spared"] += 1
        elif event.deed is Deed.KILL:
            children.kill(pid, what)
        elif event.deed is Deed.TERMINATE:
            children.terminate(pid, what)
        else:
            children.stop(pid, what, now_s + event.duration_s)

    def _watch(self, now_s: float, elapsed_s: float) -> None:
        """Measure the longest time in which no producer appends anything, and show progress."""
        appended, outcome, counts = self._fleet.look(), self.outcome, self.children.counts
        if appended != self._appended:
            self._appended, self._moved_s = appended, now_s
        elif appended:
            outcome.longest_stall_s = max(outcome.longest_stall_s, now_s - self._moved_s)
        if elapsed_s >= self._next_line_s:
            self._next_line_s = elapsed_s + 10.0
            print(
                f"{elapsed_s:4.0f} of {self.options.seconds:.0f} s: {appended:,} records appended; killed "
                f"{counts['producers killed']} producers and {counts['senders killed']} senders, stopped "
                f"{counts['producers stopped'] + counts['senders stopped']}; longest stall "
                f"{outcome.longest_stall_s:.1f} s",
                file=sys.stderr,
                flush=True,
            )

    def _may_end_sender(self) -> bool:
        """Return whether a sender may be ended; count those that ended before one had delivered anything."""
        delivered = self._acknowledged()
        self._cut_short = self._cut_short + 1 if delivered == self._delivered else 0
        self._delivered = delivered
        return self._cut_short <= _CUT_SHORT

    def _acknowledged(self) -> int:
        """Return how many records the slab has counted as acknowledged, 0 without a slab."""
        try:
            with look(self.name) as view:
                return figures(view).records_sent
        except SlabError:
            return 0

    def _take_samples(self, now_s: float) -> None:
        if self._soak is None or now_s < self._next_sample_s:
            return
        self._next_sample_s = now_s + EVERY_S
        members = self._fleet.members
        pids = {f"producer {place}": members[place].pid for place in range(_LIVE_LONG) if place in members}
        if sender := sender_pid(self.name):
            pids["sender"] = sender
        self._soak.sample(now_s, pids, shared_files(self.name), self._acknowledged())
