"""The definition of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.step.survivor import Survivor
from tools.step.victim import Victim


def appended(*records: tuple[int, str, int], resigns: bool = False) -> Callable[[Survivor], object]:
    """Return what appends records, as (partition, text, size), and then leaves the sender's role if it ``resigns``."""

    def prepare(survivor: Survivor) -> None:
        for record in records:
            survivor.append(*record)
        if resigns:
            survivor.resign()

    return prepare


_NOTHING: Final = appended()


@dataclass(frozen=True)
class Operation:
    """Something during which a process can die.

    Attributes:
        name: on the command line.
        begin: prepares the victim, and returns the function to run step by step.
        prepare: sets the scene in the survivor, which is already a producer and the sender.
        meanwhile: run by the survivor over and over while the victim lives, and once when it is dead.
        alone: whether the survivor attaches only after the victim's death; then nothing is prepared.
        refusing: whether the log refuses some batches, for any sender: see `tools.step.sending.Log`.
        pairs: whether two processes can run it at once.
        settings: of the slab, by Kafka's names.
    """

    name: str
    begin: Callable[[Victim], Callable[[], object]]
    prepare: Callable[[Survivor], object] = _NOTHING
    meanwhile: Callable[[Survivor], object] | None = None
    alone: bool = False
    refusing: bool = False
    pairs: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
