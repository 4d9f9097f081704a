"""Common parts of all kinds of runs: the slab's settings, the outcome."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.stress.options import LARGE_SLOT_SIZE, SENDER_IDLE_MS, SLOT_SIZE, SLOTS, Options
from tools.stress.soak import Soak
from tools.stress.target import Target
from tools.stress.verdict import EXAMPLES, Verdict
from tools.support.slabcheck import SlabFigures

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

    def take_in(self, verdict: Verdict) -> None:
        """Add the verdict on the records."""
        self.verdict = verdict
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
