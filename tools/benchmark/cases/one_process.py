"""Cases 1, 2, 5 and 10: one process that sends record by record, in columns, of all sizes, and in an event loop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from tools.benchmark.brokers import APACHE, SINK, TITLES
from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.cases.sending import NORMAL, sending
from tools.benchmark.contestants import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_DEFAULTS,
    KAFKA_PYTHON,
    OUR_ASYNC,
    OUR_COLUMNS,
    OURS,
    PEERS,
)
from tools.benchmark.environment import Environment
from tools.benchmark.load import ROWS_A_BATCH, Load, make_batches, make_keys, make_values
from tools.benchmark.settings import MEBIBYTE, Settings

_VALUE_SIZE: Final = 100
_PARTITIONS: Final = 4
_RECORDS: Final = 200_000
_ROWS: Final = 400_000
_LARGE: Final = Settings(batch_size=MEBIBYTE // 2)
_FIGURES: Final = ("records_per_core_s", "records_per_s", "cpu_us_per_record", "wall_s", "cpu_s", "broker_cpu_s")


def _of_small(
    environment: Environment,
    contestants: Sequence[str],
    count: int,
    kind: str = APACHE,
    keyed: bool = False,
    keep: bool = False,
    settings: Settings = NORMAL,
    *,
    name: str = "",
    **options: Any,
) -> Variant:
    """Return a variant with records of 100 bytes, for `OUR_COLUMNS` and its peers in Arrow batches."""
    key, is_large = "keyed" if keyed else "unkeyed", settings == _LARGE

    def load(contestant: str, topic: str, number: int) -> Load:
        if OUR_COLUMNS in contestants:
            return Load(topic, batches=make_batches(count, _VALUE_SIZE, keys=keyed))
        return Load(topic, make_values(count, _VALUE_SIZE), make_keys(count) if keyed else None, keep=keep)

    return sending(
        environment,
        name or "-".join([kind, key, *["kept"] * keep, *["large-batches"] * is_large]),
        f"{key}{', futures kept' * keep}{', batches of 512 KiB' * is_large}, into {TITLES[kind]}",
        contestants,
        load,
        broker=kind,
        settings=settings,
        partitions=_PARTITIONS,
        figures=_FIGURES,
        facts={"records": count, "value_size": _VALUE_SIZE, "key_size": 10 * keyed, "partitions": _PARTITIONS},
        **options,
    )


def _records(environment: Environment) -> Sequence[Variant]:
    """Return variants with and without keys and kept futures, into Apache Kafka and the cheaper sink."""
    combinations = [(APACHE, keyed, keep, NORMAL) for keyed, keep in itertools.product((False, True), repeat=2)]
    combinations += [(SINK, False, False, NORMAL), (SINK, True, False, NORMAL), (APACHE, False, False, _LARGE)]
    of_defaults = [(APACHE, keyed, False, NORMAL) for keyed in (False, True)]
    return [
        _of_small(
            environment,
            (OURS, *PEERS, *[CONFLUENT_DEFAULTS] * (each in of_defaults)),
            environment.count(_RECORDS),
            *each,
        )
        for each in environment.some(combinations, 3)
    ]


def _columns(environment: Environment) -> Sequence[Variant]:
    """Return variants with and without keys, into both brokers, and one with large batches; peers send row by row."""
    combinations = [*itertools.product((APACHE, SINK), (False, True), (False,), (NORMAL,))]
    combinations += [(APACHE, False, False, _LARGE)]
    count = environment.count(_ROWS, least=2 * ROWS_A_BATCH)
    return [
        _of_small(environment, (OUR_COLUMNS, *PEERS), count, *each, seldom={KAFKA_PYTHON: 3})
        for each in environment.some(combinations, 3)
    ]


def _in_loop(environment: Environment) -> Sequence[Variant]:
    """Return `AsyncProducer` beside the synchronous `Producer` and aiokafka; then with every future kept."""
    of_loop = partial(_of_small, environment, (OUR_ASYNC, OURS, AIOKAFKA), environment.count(_RECORDS))
    return [of_loop(name="apache"), of_loop(name="apache-kept", keep=True)]


OF_SIZES: Final = {
    "10 B": 10, "100 B": 100, "1 KiB": 1 << 10, "10 KiB": 10 << 10, "100 KiB": 100 << 10, "1 MiB": 1 << 20,
}  # fmt: skip
_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
_MOST_RECORDS: Final = 150_000
_MOST_BYTES: Final = 32 * MEBIBYTE
_ARROW_BYTES: Final = 4 * MEBIBYTE
"""An Arrow batch has `ROWS_A_BATCH` rows, or fewer so that it is not larger than this."""


def _sizes(environment: Environment) -> Sequence[Variant]:
    """Return every size uncompressed, and every codec at 1 KiB; the sizes contain the uncompressed one."""
    sizes = environment.some([*OF_SIZES.items()], 5)
    of_sizes = [_of_size(environment, f"size-{size}", f"records of {text}", size) for text, size in sizes]
    return of_sizes + [
        _of_size(environment, f"codec-{codec}", f"records of 1 KiB, compression {codec}", 1024, codec)
        for codec in environment.some(_CODECS, 3)
    ]


def _of_size(environment: Environment, name: str, title: str, size: int, codec: str = "none") -> Variant:
    most = min(_MOST_RECORDS, _MOST_BYTES // size)
    count = environment.count(most, least=max(4, min(200, (1 << 20) // size)))

    def load(contestant: str, topic: str, number: int) -> Load:
        if contestant == OUR_COLUMNS:
            rows = max(1, min(ROWS_A_BATCH, _ARROW_BYTES // size))
            return Load(topic, batches=make_batches(count, size, keys=False, rows=rows))
        return Load(topic, make_values(count, size))

    return sending(
        environment,
        name,
        title,
        (OURS, OUR_COLUMNS, CONFLUENT),
        load,
        broker=APACHE,
        # A record of 1 MiB exceeds a request of 1 MiB, the default.
        settings=Settings(max_request_size=2 * MEBIBYTE, compression_type=codec),
        partitions=_PARTITIONS,
        figures=("mb_per_core_s", "mb_per_s", "cpu_us_per_record", "cpu_s", "broker_cpu_s"),
        facts={"records": count, "value_size": size, "partitions": _PARTITIONS},
    )


RECORDS: Final = Case(1, "records", "One process, record by record", _records)
COLUMNS: Final = Case(2, "columns", f"One process, Arrow batches of {ROWS_A_BATCH:,} rows", _columns)
SIZES: Final = Case(5, "sizes", "Sizes and codecs", _sizes)
ASYNCIO: Final = Case(10, "asyncio", "One process, record by record, in an event loop", _in_loop)
