"""What all forms of a run share: the slab's settings, what comes out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.stress.options import SENDER_IDLE_MS, SLOT_SIZE, SLOTS, Options
from tools.stress.slabcheck import SlabFigures
from tools.stress.soak import Soak
from tools.stress.target import Target
from tools.stress.verdict import Verdict

_FAILURE: Final = re.compile(r"the sender failed|; failed \d+ records ")
_EXAMPLES: Final = 3


@dataclass(slots=True)
class Outcome:
    """All that came out of a run.

    Attributes:
        problems: what must not be; a run that held has none.
        verdict: on the records.
        counts: processes started, killed and stopped, and the like.
        slab: what it counted; None if it was not to be seen.
        longest_stall_s, longest_wait_s: see `Watch`; None where that is not measured.
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
        """Take the verdict on the records in."""
        self.verdict = verdict
        self.problems += (f"{kind}: {count}" for kind, count in verdict.counts.items() if count)
        self.problems += verdict.examples


@dataclass(frozen=True, slots=True)
class Places:
    """Where the files of a run are.

    Attributes:
        accounts: the writers'.
        sender_log, messages: what the senders, and what all others say.
    """

    accounts: Path
    sender_log: Path
    messages: Path

    @classmethod
    def of(cls, directory: Path) -> Places:
        """Make the places in a directory that is empty."""
        places = cls(directory / "accounts", directory / "sender.log", directory / "messages.log")
        places.accounts.mkdir()
        return places


def producer_settings(options: Options, name: str, target: Target, places: Places) -> dict[str, object]:
    """Return the settings of all producers of a run."""
    return {
        **target.settings,
        "shmaccum.name": name,
        "batch.size": SLOT_SIZE,
        "buffer.memory": SLOTS * SLOT_SIZE,
        "sender.idle.ms": SENDER_IDLE_MS,
        "sender.log.file": str(places.sender_log),
        # The dead keep their places until somebody has cleaned up behind them.
        "shmaccum.max.processes": min(1024, 128 + 4 * options.producers),
        "shmaccum.max.topics": 4,
        "shmaccum.max.partitions": 4 * options.partitions,
    }


def sender_failures(places: Places) -> list[str]:
    """Return lines in which senders say that they, or a batch, failed."""
    try:
        lines = places.sender_log.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if _FAILURE.search(line)][:_EXAMPLES]
