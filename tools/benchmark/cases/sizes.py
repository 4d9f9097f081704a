"""Case 5: records of all sizes, and every codec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.sending import send
from tools.benchmark.contestants import CONFLUENT, OUR_COLUMNS, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.load import ROWS_A_BATCH, Load, make_batches, make_values
from tools.benchmark.settings import MEBIBYTE, Settings

SIZES: Final = {"10 B": 10, "100 B": 100, "1 KiB": 1 << 10, "10 KiB": 10 << 10, "100 KiB": 100 << 10, "1 MiB": 1 << 20}
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
CODEC_SIZE: Final = 1 << 10
PARTITIONS: Final = 4
MOST_RECORDS: Final = 150_000
MOST_BYTES: Final = 32 * MEBIBYTE
_ARROW_BYTES: Final = 4 * MEBIBYTE
"""An Arrow batch has `ROWS_A_BATCH` rows, or fewer so that it is not larger than this."""
_ROOM: Final = Settings(max_request_size=2 * MEBIBYTE)
"""A record of 1 MiB exceeds a request of 1 MiB, the default."""

_FIGURES: Final = ("mb_per_core_s", "mb_per_s", "cpu_us_per_record", "cpu_s", "broker_cpu_s")


class Sizes:
    """From ten bytes to a mebibyte."""

    number = 5
    name = "sizes"
    title = "Sizes and codecs"

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return every size uncompressed, and every codec at 1 KiB; the sizes contain the uncompressed one."""
        chosen = environment.some([*SIZES.items()], 5)
        sizes = [_variant(environment, f"size-{size}", f"records of {text}", size) for text, size in chosen]
        codecs = [
            _variant(environment, f"codec-{codec}", f"records of 1 KiB, compression {codec}", CODEC_SIZE, codec)
            for codec in environment.some(CODECS, 3)
        ]
        return [*sizes, *codecs]

    def close(self) -> None:
        """Nothing is shared."""


def _variant(environment: Environment, name: str, title: str, size: int, codec: str = "none") -> Variant:
    most = min(MOST_RECORDS, MOST_BYTES // size)
    count = environment.count(most, least=max(4, min(200, (1 << 20) // size)))
    settings = Settings(**asdict(_ROOM) | {"compression": codec})

    def load(topic: str, contestant: str) -> Load:
        if contestant == OUR_COLUMNS:
            rows = max(1, min(ROWS_A_BATCH, _ARROW_BYTES // size))
            return Load(topic, batches=make_batches(count, size, keys=False, rows=rows))
        return Load(topic, make_values(count, size))

    def turn(contestant: str) -> dict[str, float]:
        return send(
            environment,
            APACHE,
            contestant,
            settings,
            lambda topic, _: load(topic, contestant),
            partitions=PARTITIONS,
        )

    return Variant(
        name=name,
        title=title,
        contestants=(OURS, OUR_COLUMNS, CONFLUENT),
        turn=turn,
        figures=_FIGURES,
        broker=APACHE,
        settings=settings,
        facts={"records": count, "value_size": size, "partitions": PARTITIONS},
        turn_s=1.2,
    )
