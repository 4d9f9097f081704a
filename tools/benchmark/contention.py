"""The cost of contention: throughput of many producers against that of one, on the same partitions."""

from __future__ import annotations

from tools.benchmark.cases.producers import PARTITIONS, PRODUCERS, variant_name
from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.results import Result, median
from tools.benchmark.tables import Table, number


def contention_table(result: Result) -> Table:
    """Return the throughput of many producers together, as a multiple of one's: ours / confluent-kafka's."""
    many = PRODUCERS[1:]
    head = [f"{OURS} / {CONFLUENT}", *(f"{producers} producers" for producers in many)]
    rows = [
        [
            f"{partitions:,} partition{'s' * (partitions > 1)}",
            *(
                " / ".join(_times(result, producers, partitions, name) for name in (OURS, CONFLUENT))
                for producers in many
            ),
        ]
        for partitions in PARTITIONS
    ]
    return Table(head, rows)


def _times(result: Result, producers: int, partitions: int, contestant: str) -> str:
    together, alone = (
        median(result, "producers", variant_name(each, partitions), contestant, "records_per_s")
        for each in (producers, 1)
    )
    return f"{number(together / alone)} ×" if together and alone else "-"
