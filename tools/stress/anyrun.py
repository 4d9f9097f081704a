"""What all kinds of runs share: where the records go, the settings, the end of a run, and its report."""

from __future__ import annotations

import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shmaccum.errors import SlabError
from shmaccum.producer.producer import Producer
from shmaccum.shm.lifecycle import look, unlink
from tools.stress.accounting import EXAMPLES, Verdict
from tools.stress.options import SLOT_SIZE, TOPICS, Options
from tools.stress.soak import Soak
from tools.support.processes import Children, is_descendant
from tools.support.reading import Stored, read_log
from tools.support.slabcheck import SlabFigures, figures, sender_pid, shared_files, unrest

DELIVERY_PATIENCE_S: Final = 60.0
"""Limit for the delivery of everything in the slab."""
TICK_S: Final = 0.02
_REST_PATIENCE_S: Final = 10.0
_SLOTS: Final = 64
"""``buffer.memory`` in slots: so few that producers wait for memory."""
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
    """The outcome of a run.

    Attributes:
        problems: violations; empty if there are none.
        verdict: on the records.
        counts: processes started, killed and stopped, and the like.
        slab: its counts; None if it could not be read.
        longest_stall_s: longest time in which no producer appended anything.
        seconds: of the load.
        soak: samples of a soak.
    """

    problems: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    counts: dict[str, int] = field(default_factory=dict)
    slab: SlabFigures | None = None
    longest_stall_s: float = 0.0
    seconds: float = 0.0
    soak: Soak | None = None


class AnyRun(ABC):
    """A run by the options.

    Args:
        options: the command line's.
        directory: an empty one, for its files.
        to: settings of producers for the target.
        log_dir: directory of the partitions' segment files.
    """

    judges_inherited = True
    """Whether it checks how processes end that it has not started itself."""

    def __init__(self, options: Options, directory: Path, to: Mapping[str, object], log_dir: Path) -> None:
        self.options, self.directory, self.name = options, directory, f"stress-{os.getpid()}"
        self.accounts, self.messages, self._sender_log = (
            directory / each for each in ("accounts", "messages.log", "sender.log")
        )
        self.accounts.mkdir()
        self.children = Children(self.messages, judge_inherited=self.judges_inherited)
        self.outcome = Outcome()
        self._log_dir = log_dir
        slot_size = SLOT_SIZE if options.compression == "none" else 16 * SLOT_SIZE
        self.settings: dict[str, object] = {
            **to,
            "shmaccum.name": self.name,
            "shmaccum.slot.size": slot_size,
            "buffer.memory": _SLOTS * slot_size,
            "compression.type": options.compression,
            "sender.idle.ms": 10_000,  # longer than the slab is checked at rest, after which the sender is stopped
            "sender.log.file": str(self._sender_log),
            # Dead processes keep their entries until another process cleans up after them.
            "shmaccum.max.processes": min(1024, 128 + 4 * options.producers),
            "shmaccum.max.topics": 4,
            "shmaccum.max.partitions": 4 * options.partitions,
        }

    @abstractmethod
    def work(self) -> None:
        """Produce under kills, until all producers have closed."""

    @abstractmethod
    def judge(self, records: Iterator[Stored]) -> Verdict:
        """Compare the log with what is to be in it."""

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


# --- the end --------------------------------------------------------------------------------------------


def come_to_rest(name: str, settings: Mapping[str, object], children: Children) -> tuple[SlabFigures | None, list[str]]:
    """Wait until a slab without producers is empty and at rest, and then until its sender has left.

    If the last sender was killed and no producer needed another, one more producer attaches, which starts a sender.

    Returns:
        The slab's counts, None if it no longer existed; and a line for each violation.
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


def _at_rest(name: str, children: Children) -> tuple[SlabFigures | None, list[str]]:
    counted = None
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
    """Return the report as JSON can hold it."""
    return {
        "held": not outcome.problems,
        "problems": outcome.problems,
        "options": {name: value for name, value in vars(options).items() if name != "json"},
        "counts": outcome.counts,
        "records": asdict(outcome.verdict),
        "slab": asdict(outcome.slab) if outcome.slab else None,
        "seconds": outcome.seconds,
        "longest_stall_s": outcome.longest_stall_s,
        "soak": outcome.soak.rows() if outcome.soak else None,
    }


def as_text(options: Options, outcome: Outcome) -> str:
    """Return the report for people."""
    of, slab = outcome.verdict, outcome.slab
    rate = of.appended / outcome.seconds if outcome.seconds else 0.0
    rows: dict[str, object] = {"appended": f"{of.appended:,} records, {rate:,.0f} a second for {outcome.seconds:.0f} s"}
    if not options.pyspark:
        rows["acknowledged"] = f"{of.acknowledged:,}, as far as producers lived to hear of it"
        rows["in doubt"] = f"{of.in_doubt:,} in calls that a kill cut short, {of.in_doubt_found:,} of them found"
        rows["longest stall"] = f"{outcome.longest_stall_s:.2f} s without a record of anybody"
    rows["found"] = f"{of.records:,} records with {of.bytes:,} bytes of values"
    rows |= outcome.counts
    if slab:
        rows |= {
            "senders": slab.senders,
            "batches": f"{slab.batches_sent:,} sent, {slab.batches_retried:,} sent again",
            "waits for memory": slab.memory_waits,
            "locks taken over": slab.takeovers,
            "indexes rebuilt": slab.rebuilds,
            "slots reclaimed": slab.reclaimed_slots,
        }
    if outcome.soak:
        rows |= outcome.soak.rows()
    end = [f"  WRONG: {problem}" for problem in outcome.problems]
    well = "  All zero: every record is in the log once, whole and in order, and nothing was left behind."
    return "\n".join([f"seed {options.seed}", "", *_lines(rows), "", *_lines(of.counts), "", *(end or [well])])


def _lines(rows: Mapping[str, object]) -> list[str]:
    texts = {name: f"{value:,}" if isinstance(value, int) else value for name, value in rows.items()}
    return [f"  {name:<22}{text}" for name, text in texts.items()]
