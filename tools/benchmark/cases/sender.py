"""Case 8: the sender by itself (`tools.bench_sender`): what a batch costs it, and what finding one among many."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools.bench_sender import BATCH_SIZE, BATCHES, READY_BATCHES, finding_costs, sending_costs
from tools.benchmark.cases.base import Variant
from tools.benchmark.crew import Member
from tools.benchmark.workshop import Workshop

SENDER: Final = "sender"
"""The one contestant of what it sends alone."""
MANY: Final = "1,000 partitions"
FEW: Final = "10 partitions"
PARTITIONS: Final = (1, 8, 64)
ROOT: Final = Path(__file__).resolve().parents[3]

_FINDING_ROUNDS: Final = 20


class SenderAlone:
    """Full batches into a sink, and `ready` + `drain` among few and many partitions."""

    number = 8
    name = "sender"
    title = "The sender alone"

    def variants(self, workshop: Workshop) -> Sequence[Variant]:
        """Batches for some partitions; then a few ready ones among partitions that linger, or have nothing."""
        sending = [_sending(workshop, partitions) for partitions in PARTITIONS]
        return [*sending, *(_finding(workshop, lingering=lingering) for lingering in (True, False))]

    def close(self) -> None:
        """Nothing is shared."""


def _sending(workshop: Workshop, partitions: int) -> Variant:
    def turn(contestant: str) -> dict[str, float]:
        (cost,) = _apart(workshop, lambda: sending_costs(partitions, 1))
        return {
            "cpu_us_per_batch": cost.cpu_us_a_batch,
            "mb_per_core_s": cost.megabytes_a_core_second,
            "system_us_per_batch": cost.system_us_a_batch,
            "batches_per_request": cost.batches_a_request,
        }

    return Variant(
        name=sending_variant(partitions),
        title=f"full batches for {partitions} partition{'s' * (partitions > 1)}",
        contestants=(SENDER,),
        turn=turn,
        figures=("cpu_us_per_batch", "mb_per_core_s", "batches_per_request"),
        facts={"batches": BATCHES, "batch_size": BATCH_SIZE, "partitions": partitions},
        warm_up=False,
    )


def sending_variant(partitions: int) -> str:
    """Return the name of the variant of full batches for so many partitions."""
    return f"alone-{partitions}"


def finding_variant(*, lingering: bool) -> str:
    """Return the name of the variant of finding what is ready among others that linger or have nothing."""
    return "finding-lingering" if lingering else "finding-empty"


def _finding(workshop: Workshop, *, lingering: bool) -> Variant:
    def turn(contestant: str) -> dict[str, float]:
        partitions = 1000 if contestant == MANY else 10
        costs = _apart(workshop, lambda: finding_costs(partitions, _FINDING_ROUNDS, lingering=lingering))
        return {"cpu_us": min(cost.cpu_us for cost in costs)}

    return Variant(
        name=finding_variant(lingering=lingering),
        title=f"ready + drain of {READY_BATCHES} batches, all other partitions {'lingering' if lingering else 'empty'}",
        contestants=(MANY, FEW),
        turn=turn,
        figures=("cpu_us",),
        facts={"ready_batches": READY_BATCHES},
        warm_up=False,
    )


def _apart(workshop: Workshop, measure: Callable[[], list[Any]]) -> list[Any]:
    """Measure in a process of its own."""

    def work(member: Member) -> None:
        os.chdir(ROOT)  # from where the sink's module is found
        member.wait_for_go()
        member.done(measure())

    (report,) = workshop.measure(None, [work]).reports
    costs: list[Any] = report.result
    return costs
