"""Case 10: one process, record by record, in an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.benchmark.brokers import APACHE, TITLES
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.records import PARTITIONS, RECORDS, VALUE_SIZE
from tools.benchmark.cases.sending import SENDING_FIGURES, send
from tools.benchmark.contestants import AIOKAFKA, OUR_ASYNC, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.load import Load, make_values
from tools.benchmark.settings import Settings


class InLoop:
    """`AsyncProducer` beside the synchronous `Producer` and aiokafka."""

    number = 10
    name = "asyncio"
    title = "One process, record by record, in an event loop"

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return one variant, and one that keeps and looks at every future."""
        return [_variant(environment, keep) for keep in environment.some((False, True), 1)]

    def close(self) -> None:
        """Nothing is shared."""


def _variant(environment: Environment, keep: bool) -> Variant:
    count: Final = environment.count(RECORDS)
    settings = Settings()

    def load(topic: str, number: int) -> Load:
        return Load(topic, make_values(count, VALUE_SIZE), keep=keep)

    def turn(contestant: str) -> dict[str, float]:
        return send(environment, APACHE, contestant, settings, load, partitions=PARTITIONS)

    return Variant(
        name="apache-kept" if keep else "apache",
        title=f"unkeyed{', futures kept' if keep else ''}, into {TITLES[APACHE]}",
        contestants=(OUR_ASYNC, OURS, AIOKAFKA),
        turn=turn,
        figures=SENDING_FIGURES,
        broker=APACHE,
        settings=settings,
        facts={"records": count, "value_size": VALUE_SIZE, "key_size": 0, "partitions": PARTITIONS},
        turn_s=1.8,
    )
