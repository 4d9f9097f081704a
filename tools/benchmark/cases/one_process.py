"""Cases 1, 2, 5 and 10: one process that sends record by record, in columns, of all sizes, and in an event loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tools.benchmark.brokers import APACHE, SINK, TITLES
from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.cases.sending import send
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
_NORMAL: Final = Settings()
_LARGE: Final = Settings(batch_size=MEBIBYTE // 2)
_FIGURES: Final = ("records_per_core_s", "records_per_s", "cpu_us_per_record", "wall_s", "cpu_s", "broker_cpu_s")


def _variant(
    environment: Environment,
    name: str,
    title: str,
    contestants: Sequence[str],
    load: Callable[[str, str, int], Load],
    *,
    kind: str = APACHE,
    settings: Settings = _NORMAL,
    figures: Sequence[str] = _FIGURES,
    facts: dict[str, Any],
    **options: Any,
) -> Variant:
    """Return a variant in which each contestant sends a load to a kind of broker; ``load`` gets the contestant, too."""

    def turn(contestant: str) -> dict[str, float]:
        return send(environment, kind, contestant, settings, partial(load, contestant), partitions=_PARTITIONS)

    facts["partitions"] = _PARTITIONS
    return Variant(name, title, contestants, turn, figures, kind, settings, facts, **options)


def _records(environment: Environment) -> Sequence[Variant]:
    """Return variants with and without keys and kept futures, into Apache Kafka and the cheaper sink."""
    combinations = [(APACHE, keyed, keep, _NORMAL) for keyed, keep in itertools.product((False, True), repeat=2)]
    combinations += [(SINK, False, False, _NORMAL), (SINK, True, False, _NORMAL), (APACHE, False, False, _LARGE)]
    return [_of_records(environment, *each) for each in environment.some(combinations, 3)]


def _of_records(environment: Environment, kind: str, keyed: bool, keep: bool, settings: Settings) -> Variant:
    count, key, large = environment.count(_RECORDS), "keyed" if keyed else "unkeyed", settings == _LARGE

    def load(contestant: str, topic: str, number: int) -> Load:
        return Load(topic, make_values(count, _VALUE_SIZE), make_keys(count) if keyed else None, keep=keep)

    return _variant(
        environment,
        "-".join([kind, key, *["kept"] * keep, *["large-batches"] * large]),
        f"{key}{', futures kept' * keep}{', batches of 512 KiB' * large}, into {TITLES[kind]}",
        (OURS, *PEERS, *[CONFLUENT_DEFAULTS] * (kind == APACHE and not keep and not large)),
        load,
        kind=kind,
        settings=settings,
        facts={"records": count, "value_size": _VALUE_SIZE, "key_size": 10 * keyed},
    )


def _columns(environment: Environment) -> Sequence[Variant]:
    """Return variants with and without keys, into both brokers, and one with large batches; peers send row by row."""
    combinations = [*itertools.product((APACHE, SINK), (False, True), (_NORMAL,)), (APACHE, False, _LARGE)]
    return [_of_columns(environment, *each) for each in environment.some(combinations, 3)]


def _of_columns(environment: Environment, kind: str, keyed: bool, settings: Settings) -> Variant:
    count, key = environment.count(_ROWS, least=2 * ROWS_A_BATCH), "keyed" if keyed else "unkeyed"
    large = settings == _LARGE
    return _variant(
        environment,
        "-".join([kind, key, *["large-batches"] * large]),
        f"{key}{', batches of 512 KiB' * large}, into {TITLES[kind]}",
        (OUR_COLUMNS, *PEERS),
        lambda _, topic, number: Load(topic, batches=make_batches(count, _VALUE_SIZE, keys=keyed)),
        kind=kind,
        settings=settings,
        facts={"records": count, "value_size": _VALUE_SIZE, "key_size": 10 * keyed},
        seldom={KAFKA_PYTHON: 3},
    )


def _in_loop(environment: Environment) -> Sequence[Variant]:
    """Return `AsyncProducer` beside the synchronous `Producer` and aiokafka; then with every future kept."""
    return [_of_loop(environment, keep) for keep in (False, True)]


def _of_loop(environment: Environment, keep: bool) -> Variant:
    count = environment.count(_RECORDS)
    return _variant(
        environment,
        "apache-kept" if keep else "apache",
        f"unkeyed{', futures kept' * keep}, into {TITLES[APACHE]}",
        (OUR_ASYNC, OURS, AIOKAFKA),
        lambda _, topic, number: Load(topic, make_values(count, _VALUE_SIZE), keep=keep),
        facts={"records": count, "value_size": _VALUE_SIZE, "key_size": 0},
    )


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

    return _variant(
        environment,
        name,
        title,
        (OURS, OUR_COLUMNS, CONFLUENT),
        load,
        # A record of 1 MiB exceeds a request of 1 MiB, the default.
        settings=Settings(max_request_size=2 * MEBIBYTE, compression=codec),
        figures=("mb_per_core_s", "mb_per_s", "cpu_us_per_record", "cpu_s", "broker_cpu_s"),
        facts={"records": count, "value_size": size},
    )


RECORDS: Final = Case(1, "records", "One process, record by record", _records)
COLUMNS: Final = Case(2, "columns", f"One process, Arrow batches of {ROWS_A_BATCH:,} rows", _columns)
SIZES: Final = Case(5, "sizes", "Sizes and codecs", _sizes)
ASYNCIO: Final = Case(10, "asyncio", "One process, record by record, in an event loop", _in_loop)
