"""What an operation consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tools.crashpoints.survivor import Survivor
from tools.crashpoints.victim import Victim


def _nothing(survivor: Survivor) -> None:
    pass


@dataclass(frozen=True)
class Operation:
    """Something that a process can die over.

    Attributes:
        name: what it is called on the command line.
        begin: gets the victim ready, and returns what is run step by step.
        prepare: sets the scene, in the survivor, which has settled in as producer and sender.
        meanwhile: what the survivor does over and over while the victim lives, and once when it is dead.
        alone: the survivor comes only when the victim is dead; nothing is prepared.
        refusing: whether the log refuses some batches, whoever is the sender: see `tools.crashpoints.sending.Log`.
        settings: of the slab, by Kafka's names.
    """

    name: str
    begin: Callable[[Victim], Callable[[], object]]
    prepare: Callable[[Survivor], object] = _nothing
    meanwhile: Callable[[Survivor], object] | None = None
    alone: bool = False
    refusing: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
