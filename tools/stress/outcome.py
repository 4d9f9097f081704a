"""What all kinds of runs share: where the records go, the settings, the end of a run, and its report."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shmaccum.errors import SlabError
from shmaccum.producer.producer import Producer
from shmaccum.shm.lifecycle import look
from tools.stress.accounting import EXAMPLES, Verdict
from tools.stress.options import LARGE_SLOT_SIZE, SENDER_IDLE_MS, SLOT_SIZE, SLOTS, Options
from tools.stress.soak import Soak
from tools.support.processes import Children, is_descendant
from tools.support.slabcheck import SlabFigures, figures, sender_pid, shared_files, unrest


@dataclass(frozen=True, slots=True)
class Target:
    """A log, or a broker.

    Attributes:
        settings: of producers that send to it.
        log_dir: directory of the partitions' segment files: the log transport's, or the broker's own.
    """

    settings: Mapping[str, object]
    log_dir: Path


@contextmanager
def target(options: Options, directory: Path) -> Iterator[Target]:
    """Create the requested target; stop a broker at the end, and keep its files."""
    if options.transport == "log":
        log_dir = directory / "log"
        settings = {
            "transport": "log",
            "log.dir": str(log_dir),
            "num.partitions": options.partitions,
            "segment.bytes": 16 << 20,
        }
        yield Target(settings, log_dir)
        return
    from tools.kafka import KafkaCluster, ensure_kafka

    ensure_kafka()
    # Topics are created on first use, with this number of partitions.
    overrides = {"auto.create.topics.enable": "true", "num.partitions": options.partitions}
    with KafkaCluster(directory / "kafka", overrides=overrides) as cluster:
        yield Target({"transport": "kafka", "bootstrap.servers": cluster.bootstrap_servers}, cluster.nodes[1].data)


_FAILURE: Final = re.compile(r"the sender failed|; failed \d+ records ")


@dataclass(slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        problems: violations; empty if there are none.
        verdict: on the records.
        counts: processes started, killed and stopped, and the like.
        slab: its counts; None if it could not be read.
        longest_stall_s, longest_wait_s: see `Watch`; None if not measured.
        seconds: of the load.
        soak: samples of a soak.
    """

    problems: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    counts: dict[str, int] = field(default_factory=dict)
    slab: SlabFigures | None = None
    longest_stall_s: float | None = None
    longest_wait_s: float | None = None
    seconds: float = 0.0
    soak: Soak | None = None

    def take_in(self, verdict: Verdict, torn: list[str]) -> None:
        """Add the verdict on the records, and what is torn by the log itself."""
        self.verdict = verdict
        for what in torn:
            verdict.add("torn", what)
        self.problems += (f"{kind}: {count}" for kind, count in verdict.counts.items() if count)
        self.problems += verdict.examples


@dataclass(frozen=True, slots=True)
class Places:
    """The files of a run.

    Attributes:
        accounts: the writers'.
        sender_log, messages: output of the senders, and of all others.
    """

    accounts: Path
    sender_log: Path
    messages: Path

    @classmethod
    def of(cls, directory: Path) -> Places:
        """Create them in an empty directory."""
        places = cls(directory / "accounts", directory / "sender.log", directory / "messages.log")
        places.accounts.mkdir()
        return places


def producer_settings(options: Options, name: str, target: Target, places: Places) -> dict[str, object]:
    """Return the settings of all producers of a run."""
    slot_size = SLOT_SIZE if options.compression == "none" else LARGE_SLOT_SIZE
    return {
        **target.settings,
        "shmaccum.name": name,
        "shmaccum.slot.size": slot_size,
        "buffer.memory": SLOTS * slot_size,
        "compression.type": options.compression,
        "sender.idle.ms": SENDER_IDLE_MS,
        "sender.log.file": str(places.sender_log),
        # Dead processes keep their entries until another process cleans up after them.
        "shmaccum.max.processes": min(1024, 128 + 4 * options.producers),
        "shmaccum.max.topics": 4,
        "shmaccum.max.partitions": 4 * options.partitions,
    }


def sender_failures(places: Places) -> list[str]:
    """Return lines in which senders log that they, or a batch, failed."""
    try:
        lines = places.sender_log.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if _FAILURE.search(line)][:EXAMPLES]


# --- the end --------------------------------------------------------------------------------------------

DELIVERY_PATIENCE_S: Final = 60.0
"""Limit for the delivery of everything in the slab."""
_REST_PATIENCE_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.02


def come_to_rest(name: str, settings: Mapping[str, object], children: Children) -> tuple[SlabFigures | None, list[str]]:
    """Wait until a slab without producers is empty and at rest, and then until its sender has left.

    If the last sender was killed and no producer needed another, one more producer attaches, which starts a sender.

    Args:
        name: the slab's name.
        settings: of its producers.
        children: the processes of the run.

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
        time.sleep(_LOOK_EVERY_S)
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
        time.sleep(_LOOK_EVERY_S)


def acknowledged(name: str) -> int:
    """Return how many records the slab has counted as acknowledged, 0 without a slab."""
    try:
        with look(name) as view:
            return figures(view).records_sent
    except SlabError:
        return 0


# --- the report -----------------------------------------------------------------------------------------


def as_json(options: Options, outcome: Outcome) -> dict[str, Any]:
    """Return the report as JSON can hold it."""
    verdict = outcome.verdict
    return {
        "held": not outcome.problems,
        "problems": outcome.problems,
        "options": {name: value for name, value in asdict(options).items() if name != "json"},
        "counts": outcome.counts,
        "records": asdict(verdict),
        "slab": asdict(outcome.slab) if outcome.slab else None,
        "seconds": outcome.seconds,
        "longest_stall_s": outcome.longest_stall_s,
        "longest_wait_s": outcome.longest_wait_s,
        "soak": outcome.soak.figures() if outcome.soak else None,
    }


def as_text(options: Options, outcome: Outcome) -> str:
    """Return the report for people."""
    verdict, slab = outcome.verdict, outcome.slab
    rate = verdict.appended / outcome.seconds if outcome.seconds else 0.0
    rows: dict[str, object] = {
        "appended": f"{verdict.appended:,} records, {rate:,.0f} a second for {outcome.seconds:.0f} s"
    }
    if not options.pyspark:
        rows |= {
            "acknowledged": f"{verdict.acknowledged:,}, as far as producers lived to hear of it",
            "in doubt": f"{verdict.in_doubt:,} in calls cut short by a kill, {verdict.in_doubt_found:,} of them found",
        }
    rows["found"] = f"{verdict.records:,} records with {verdict.bytes:,} bytes of values"
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
    if outcome.longest_stall_s is not None:
        rows |= {
            "longest stall": f"{outcome.longest_stall_s:.2f} s without a record of anybody",
            "longest wait": f"{outcome.longest_wait_s:.2f} s of one producer that was not stopped",
        }
    if outcome.soak:
        rows |= outcome.soak.rows()
    return "\n".join(
        [
            *(f"seed {options.seed}", "", *_lines(rows), "", *_lines(verdict.counts), ""),
            *(f"  WRONG: {problem}" for problem in outcome.problems),
            *(() if outcome.problems else (_ALL_IS_WELL,)),
        ]
    )


_ALL_IS_WELL: Final = "  All zero: every record is in the log once, whole and in order, and nothing was left behind."


def _lines(rows: Mapping[str, object]) -> list[str]:
    return [
        f"  {name:<22}{value:,}" if isinstance(value, int) else f"  {name:<22}{value}" for name, value in rows.items()
    ]
