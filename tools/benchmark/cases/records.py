"""Case 1: one process, record by record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from tools.benchmark.brokers import APACHE, SINK, TITLES
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.sending import SENDING_FIGURES, send
from tools.benchmark.contestants import CONFLUENT_DEFAULTS, OURS, PEERS
from tools.benchmark.environment import Environment
from tools.benchmark.load import Load, make_keys, make_values
from tools.benchmark.settings import MEBIBYTE, Settings

RECORDS: Final = 200_000
VALUE_SIZE: Final = 100
PARTITIONS: Final = 4


class Records:
    """The calls that every program begins with."""

    number = 1
    name = "records"
    title = "One process, record by record"

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return variants with and without keys and kept futures, into Apache Kafka and the cheaper sink."""
        combinations = [
            (APACHE, keyed, keep, Settings()) for keyed, keep in itertools.product((False, True), (False, True))
        ]
        combinations += [(SINK, False, False, Settings()), (SINK, True, False, Settings())]
        combinations += [(APACHE, False, False, Settings(batch_size=MEBIBYTE // 2))]
        return [_variant(environment, *each) for each in environment.some(combinations, 3)]

    def close(self) -> None:
        """Nothing is shared."""


def _variant(environment: Environment, kind: str, keyed: bool, keep: bool, settings: Settings) -> Variant:
    count = environment.count(RECORDS)

    def load(topic: str, number: int) -> Load:
        return Load(topic, make_values(count, VALUE_SIZE), make_keys(count) if keyed else None, keep=keep)

    def turn(contestant: str) -> dict[str, float]:
        return send(environment, kind, contestant, settings, load, partitions=PARTITIONS)

    is_main = kind == APACHE and not keep and settings == Settings()
    contestants = (OURS, *PEERS, *[CONFLUENT_DEFAULTS] * is_main)
    large = settings.batch_size != Settings().batch_size
    words = ["keyed" if keyed else "unkeyed", *["futures kept"] * keep, *["batches of 512 KiB"] * large]
    return Variant(
        name="-".join([kind, "keyed" if keyed else "unkeyed", *["kept"] * keep, *["large-batches"] * large]),
        title=f"{', '.join(words)}, into {TITLES[kind]}",
        contestants=contestants,
        turn=turn,
        figures=SENDING_FIGURES,
        broker=kind,
        settings=settings,
        facts={"records": count, "value_size": VALUE_SIZE, "key_size": 10 * keyed, "partitions": PARTITIONS},
        turn_s=1.8,
    )
