"""Case 8: the sender alone (`tools.benchmark.sender_costs`): the cost of sending and of finding a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.environment import Environment, Member

ALONE: Final = "sender"
MANY: Final = "1,000 partitions"
FEW: Final = "10 partitions"
PARTITIONS: Final = (1, 8, 64)
BATCHES: Final = 2048
"""The number of slots that a slab has by default."""

TIMES: Final = 3
"""Times that a turn empties the slab; the median counts."""
_SMOKE_BATCHES: Final = 128
_FINDING_ROUNDS: Final = 20
_Cost = TypeVar("_Cost")


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return full batches for some partitions; then a few ready ones among partitions that linger or are empty."""
    sending = [_sending(environment, partitions) for partitions in PARTITIONS]
    return [*sending, *(_finding(environment, lingering=lingering) for lingering in (True, False))]


def _sending(environment: Environment, partitions: int) -> Variant:
    batches = _SMOKE_BATCHES if environment.smoke else BATCHES

    def turn(contestant: str) -> dict[str, float]:
        def measure() -> list[dict[str, float]]:
            from tools.benchmark.sender_costs import sending_costs

            return sending_costs(partitions, TIMES, batches=batches)

        costs = sorted(_apart(environment, measure), key=lambda cost: cost["cpu_us_per_batch"])
        return costs[len(costs) // 2]

    return Variant(
        name=f"alone-{partitions}",
        title=f"full batches for {plural(partitions, 'partition')}",
        contestants=(ALONE,),
        turn=turn,
        figures=("cpu_us_per_batch", "mb_per_core_s", "batches_per_request"),
        facts={"batches": batches, "times": TIMES, "partitions": partitions},
        warm_up=False,
    )


def _finding(environment: Environment, *, lingering: bool) -> Variant:
    def turn(contestant: str) -> dict[str, float]:
        partitions = 1000 if contestant == MANY else 10

        def measure() -> list[float]:
            from tools.benchmark.sender_costs import finding_costs

            return finding_costs(partitions, _FINDING_ROUNDS, lingering=lingering)

        return {"cpu_us": min(_apart(environment, measure))}

    others = "lingering" if lingering else "empty"
    title = f"ready + drain of ten batches, all other partitions {others}"
    return Variant(f"finding-{others}", title, (MANY, FEW), turn, ("cpu_us",), warm_up=False)


def _apart(environment: Environment, measure: Callable[[], list[_Cost]]) -> list[_Cost]:
    """Measure in a process of its own, because only that process imports the package."""

    def work(member: Member) -> None:
        member.wait_for_go()
        member.done(measure())

    (report,) = environment.measure(None, [work]).reports
    costs: list[_Cost] = report.result
    return costs


SENDER: Final = Case(8, "sender", "The sender alone", _variants)
