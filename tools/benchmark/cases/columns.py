"""Case 2: one process, Arrow batches of 10,000 rows; peers send the same batches row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.benchmark.brokers import APACHE, SINK, TITLES
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.sending import SENDING_FIGURES, send
from tools.benchmark.contestants import KAFKA_PYTHON, OUR_COLUMNS, PEERS
from tools.benchmark.environment import Environment
from tools.benchmark.load import ROWS_A_BATCH, Load, make_batches
from tools.benchmark.settings import MEBIBYTE, Settings

RECORDS: Final = 400_000
VALUE_SIZE: Final = 100
PARTITIONS: Final = 4


class Columns:
    """A program with its data in columns."""

    number = 2
    name = "columns"
    title = f"One process, Arrow batches of {ROWS_A_BATCH:,} rows"

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """With and without keys, into Apache Kafka and the sink; and with large batches."""
        combinations = [
            (APACHE, False, Settings()),
            (APACHE, True, Settings()),
            (SINK, False, Settings()),
            (SINK, True, Settings()),
            (APACHE, False, Settings(batch_size=MEBIBYTE // 2)),
        ]
        return [_variant(environment, *each) for each in environment.some(combinations, 3)]

    def close(self) -> None:
        """Nothing is shared."""


def _variant(environment: Environment, kind: str, keyed: bool, settings: Settings) -> Variant:
    count = environment.count(RECORDS, least=2 * ROWS_A_BATCH)

    def load(topic: str, number: int) -> Load:
        return Load(topic, batches=make_batches(count, VALUE_SIZE, keys=keyed))

    def turn(contestant: str) -> dict[str, float]:
        return send(environment, kind, contestant, settings, load, partitions=PARTITIONS)

    large = settings.batch_size != Settings().batch_size
    key = "keyed" if keyed else "unkeyed"
    return Variant(
        name="-".join([kind, key, *["large-batches"] * large]),
        title=f"{key}{', batches of 512 KiB' * large}, into {TITLES[kind]}",
        contestants=(OUR_COLUMNS, *PEERS),
        turn=turn,
        figures=SENDING_FIGURES,
        broker=kind,
        settings=settings,
        facts={"records": count, "value_size": VALUE_SIZE, "key_size": 10 * keyed, "partitions": PARTITIONS},
        seldom={KAFKA_PYTHON: 3},
        turn_s=2.2,
    )
