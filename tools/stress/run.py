"""The run: producers under kills, the end, and the report.

A plan says which processes are killed, terminated or stopped, and when, from seed and rates only.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from shmaccum.errors import SlabError
from shmaccum.producer.producer import Producer
from shmaccum.shm.lifecycle import look, unlink
from tools.stress.accounting import EXAMPLES, Verdict, all_accounts, judge
from tools.stress.options import SLOT_SIZE, TOPICS, Options
from tools.stress.producers import Fleet, Load
from tools.stress.soak import EVERY_S, Soak
from tools.support.processes import Children, is_descendant
from tools.support.reading import Stored, read_log
from tools.support.slabcheck import figures, sender_pid, shared_files, unrest

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
    """One action, on a producer's place or on `SENDER`; a stop lasts for some time."""

    at_s: float
    victim: int
    deed: Deed
    duration_s: float = 0.0


def make_plan(options: Options, spared: int = 0) -> list[Event]:
    """Return the events in order of time: of each kind as many as its rate requires, at times that the seed decides.

    Producers and the sender are stopped, and asked to end, equally often. The first ``spared`` ones are not killed.
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


# --- the run ----------------------------------------------------------------------------------------------

DELIVERY_PATIENCE_S: Final = 60.0
"""Limit for the delivery of everything in the slab."""
TICK_S: Final = 0.02
_REST_PATIENCE_S: Final = 10.0
_SLOTS: Final = 64
"""``buffer.memory`` in slots: so few that producers wait for memory."""
_LONGEST_TICK_S: Final = 0.2
"""If this process is delayed for longer, so is the run; else all missed actions would happen at once."""
_START_PATIENCE_S: Final = 120.0
_LIVE_LONG: Final = 2
"""Producers that a soak does not kill."""
_CUT_SHORT: Final = 2
"""Senders in a row that may end before one has delivered anything: a producer gives up after three starts."""
_FAILURE: Final = re.compile(r"the sender failed|; failed \d+ records ")


@contextmanager
def target(options: Options, directory: Path) -> Iterator[tuple[dict[str, object], Path]]:
    """Create a log, or a broker, which is stopped at the end and leaves its files.

    Yields:
        The settings of producers that send to it, and the directory of the partitions' segment files.
    """
    if options.transport == "log":
        to = {"transport": "log", "log.dir": str(directory / "log"), "segment.bytes": 16 << 20}
        yield to | {"num.partitions": options.partitions}, directory / "log"
        return
    from tools.kafka import KafkaCluster, ensure_kafka

    ensure_kafka()
    # Topics are created on first use, with this number of partitions.
    overrides = {"auto.create.topics.enable": "true", "num.partitions": options.partitions}
    with KafkaCluster(directory / "kafka", overrides=overrides) as cluster:
        yield {"transport": "kafka", "bootstrap.servers": cluster.bootstrap_servers}, cluster.nodes[1].data


@dataclass(slots=True)
class Outcome:
    """The outcome of a run, which holds if there are no problems; no figures of a slab that could not be read."""

    problems: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    counts: dict[str, int] = field(default_factory=dict)
    slab: dict[str, int] = field(default_factory=dict)
    longest_stall_s: float = 0.0
    seconds: float = 0.0
    soak: Soak | None = None


class Run:
    """A run in an empty directory, given settings of producers for the target, and where its segments are."""

    def __init__(self, options: Options, directory: Path, to: Mapping[str, object], log_dir: Path) -> None:
        self.options, self.directory, self.name = options, directory, f"stress-{os.getpid()}"
        self.accounts, self.messages, self._sender_log = (
            directory / each for each in ("accounts", "messages.log", "sender.log")
        )
        self.accounts.mkdir()
        self.children = Children(self.messages)
        self.outcome = Outcome()
        self._log_dir = log_dir
        slot_size = SLOT_SIZE if options.compression == "none" else 16 * SLOT_SIZE
        self.settings: dict[str, object] = {
            **to,
            "shmaccum.name": self.name,
            "shmaccum.slot.size": slot_size,
            "buffer.memory": _SLOTS * slot_size,
            "max.request.size": _SLOTS * slot_size // 8,  # requests wait for each other: two connections to a broker
            "compression.type": options.compression,
            "sender.idle.ms": 10_000,  # longer than the slab is checked at rest, after which the sender is stopped
            "sender.log.file": str(self._sender_log),
            # Dead processes keep their entries until another process cleans up after them.
            "shmaccum.max.processes": min(1024, 128 + 4 * options.producers),
            "shmaccum.max.topics": 4,
            "shmaccum.max.partitions": 4 * options.partitions,
        }
        self._fleet = Fleet(self.children, Load(self.settings, self.accounts, options))
        self._soak = self.outcome.soak = Soak() if options.soak else None
        self._next_sample_s = 0.0
        self._delivered = 0
        self._cut_short = 0
        self._appended = 0
        self._moved_s = 0.0
        self._next_line_s = 0.0

    def run(self) -> Outcome:
        """Run everything; leave no process and nothing in /dev/shm behind in any case."""
        outcome = self.outcome
        try:
            self.work()
            outcome.slab, problems = come_to_rest(self.name, self.settings, self.children)
        finally:
            self.children.kill_all()
            unlink(self.name)
        outcome.problems += problems + self.children.problems
        if self._sender_log.exists():
            failures = [line for line in self._sender_log.read_text().splitlines() if _FAILURE.search(line)]
            outcome.problems += failures[:EXAMPLES]
        outcome.counts = dict(sorted(self.children.counts.items()))
        torn: list[str] = []
        outcome.verdict = self.judge(read_log(self._log_dir, torn, TOPICS))
        for what in torn:
            outcome.verdict.add("torn", what)
        outcome.problems += (f"{kind}: {count}" for kind, count in outcome.verdict.counts.items() if count)
        outcome.problems += outcome.verdict.examples
        return outcome

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
                return figures(view)["records_sent"]
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


# --- the end --------------------------------------------------------------------------------------------


def come_to_rest(name: str, settings: Mapping[str, object], children: Children) -> tuple[dict[str, int], list[str]]:
    """Wait until a slab without producers is empty and at rest, and then until its sender has left.

    If the last sender was killed and no producer needed another, one more producer attaches, which starts a sender.

    Returns:
        The slab's counts, none if it no longer existed; and a line for each violation.
    """

    def come_and_go() -> int:
        Producer(settings).close()
        return 0

    if not sender_pid(name):
        children.wait_for(children.fork("the last producer", come_and_go), DELIVERY_PATIENCE_S)
    counted, problems = _at_rest(name, children)
    deadline = time.monotonic() + _REST_PATIENCE_S
    asked: set[int] = set()
    while (left := shared_files(name)) and time.monotonic() < deadline:
        # Another one can appear: a killed producer may have been starting it.
        pid = sender_pid(name)
        if pid not in asked and is_descendant(pid):
            asked.add(pid)  # only one signal: after a second one it would exit at once
            os.kill(pid, signal.SIGTERM)
        children.reap()
        time.sleep(TICK_S)
    return counted, problems + [f"left in /dev/shm: {file.name}" for file in left]


def _at_rest(name: str, children: Children) -> tuple[dict[str, int], list[str]]:
    counted: dict[str, int] = {}
    deadline = time.monotonic() + _REST_PATIENCE_S
    last = time.monotonic() + DELIVERY_PATIENCE_S
    left: list[str] = []
    while True:
        children.reap()
        try:
            with look(name) as view:
                counted = figures(view)
                left = unrest(view)
                if view.undelivered() != (0, 0):
                    deadline = min(time.monotonic() + _REST_PATIENCE_S, last)
        except SlabError as error:  # it does not exist, or not yet
            left = [str(error), *(line for line in left if line != str(error))]
        if not left or time.monotonic() > deadline:
            return counted, [f"at rest: {line}" for line in left]
        time.sleep(TICK_S)


# --- the report -----------------------------------------------------------------------------------------


def as_json(options: Options, outcome: Outcome) -> dict[str, Any]:
    return {
        "held": not outcome.problems,
        "problems": outcome.problems,
        "options": {name: value for name, value in vars(options).items() if name != "json"},
        "counts": outcome.counts,
        "records": asdict(outcome.verdict),
        "slab": outcome.slab,
        "seconds": outcome.seconds,
        "longest_stall_s": outcome.longest_stall_s,
        "soak": outcome.soak.rows() if outcome.soak else None,
    }


def as_text(options: Options, outcome: Outcome) -> str:
    of = outcome.verdict
    rate = of.appended / outcome.seconds if outcome.seconds else 0.0
    rows: dict[str, object] = {
        "appended": f"{of.appended:,} records, {rate:,.0f} a second for {outcome.seconds:.0f} s",
        "acknowledged": f"{of.acknowledged:,}, as far as producers lived to hear of it",
        "in doubt": f"{of.in_doubt:,} in calls that a kill cut short, {of.in_doubt_found:,} of them found",
        "longest stall": f"{outcome.longest_stall_s:.2f} s without a record of anybody",
        "found": f"{of.records:,} records with {of.bytes:,} bytes of values",
        **outcome.counts,
        **{name.replace("_", " "): count for name, count in outcome.slab.items()},
    }
    if outcome.soak:
        rows |= outcome.soak.rows()
    end = [f"  WRONG: {problem}" for problem in outcome.problems]
    well = "  All zero: every record is in the log once, whole and in order, and nothing was left behind."
    return "\n".join([f"seed {options.seed}", "", *_lines(rows), "", *_lines(of.counts), "", *(end or [well])])


def _lines(rows: Mapping[str, object]) -> list[str]:
    texts = {name: f"{value:,}" if isinstance(value, int) else value for name, value in rows.items()}
    return [f"  {name:<22}{text}" for name, text in texts.items()]
