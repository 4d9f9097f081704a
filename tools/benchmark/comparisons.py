"""Three comparisons for the reports: with the machine's limits, of many producers with one, and where a peer is better.

The limit of a record is the work that cannot be avoided. In the producer: one copy into the slab and, record by record,
one turn of the semaphore. In the sender: one checksum and one pass through the socket, with the kernel's own copy. From
Spark: the transfer of a row into Python. The rest is attributed to the process that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tools.benchmark.cases.base import plural
from tools.benchmark.cases.latency import RATES
from tools.benchmark.cases.latency import variant_name as latency_variant
from tools.benchmark.cases.one_process import OF_SIZES
from tools.benchmark.cases.producers import NUMBERS, variant_name
from tools.benchmark.cases.producers import PARTITIONS as SHARED
from tools.benchmark.cases.sender import ALONE, PARTITIONS, sending_variant
from tools.benchmark.contestants import CONFLUENT, CONFLUENT_DEFAULTS, OUR_ASYNC, OUR_COLUMNS, OURS, PEERS
from tools.benchmark.results import Result, median, variant_of, variants_of
from tools.benchmark.spark.jobs import ARROW, EXACTLY_ONCE, KEPT_CONFLUENT, SPARK_SINK
from tools.benchmark.statistics import Spread, ratio
from tools.benchmark.tables import FIGURES, LESS_IS_BETTER, MORE_IS_BETTER, Table, number, with_spread

# --- with the limits --------------------------------------------------------------------------------------

_RECORD_OVERHEAD: Final = 9
"""Bytes of a small record in addition to key and value, in format v2: lengths, deltas, attributes."""
_BATCH_SIZE: Final = 16 * 1024


class Limits(NamedTuple):
    """The costs measured by `tools.benchmark.cases.limits`, in nanoseconds.

    Attributes:
        copy, checksum, socket: per byte.
        semaphore: per turn.
        round_trip: of a request.
        row: per row transferred from Spark.
    """

    copy: float
    checksum: float
    socket: float
    semaphore: float
    round_trip: float
    row: float


class _Case(NamedTuple):
    """A measurement and its limit: per record, turns of the semaphore, and rows transferred from Spark."""

    case: str
    variant: str
    contestant: str
    title: str
    semaphores: int = 0
    rows: int = 0


_CASES: Final = (
    _Case("records", "apache-unkeyed", OURS, "1, `send`, unkeyed", 1),
    _Case("records", "apache-keyed", OURS, "1, `send`, keyed", 1),
    _Case("records", "sink-unkeyed", OURS, "1, `send`, unkeyed, into the sink", 1),
    _Case("columns", "apache-unkeyed", OUR_COLUMNS, "2, `send_batch`"),
    _Case("columns", "sink-unkeyed", OUR_COLUMNS, "2, `send_batch`, into the sink"),
    _Case("producers", "8-on-1", OURS, "3, 8 processes on 1 partition", 1),
    _Case("producers", "8-on-8", OURS, "3, 8 processes on 8 partitions", 1),
    _Case("producers", "8-on-1000", OURS, "3, 8 processes on 1,000 partitions", 1),
    _Case("spark", "large", OURS, "4, data source", 0, 1),
    *(_Case("sizes", f"size-{size}", OURS, f"5, `send`, {text}", 1) for text, size in OF_SIZES.items()),
    *(_Case("sizes", f"size-{size}", OUR_COLUMNS, f"5, `send_batch`, {text}") for text, size in OF_SIZES.items()),
)


def limit_table(result: Result, case: str = "") -> Table:
    """Return the limit, the result, and the rest by process, for one case or all."""
    limits = _limits_of(result)
    rows: list[list[str]] = []
    if limits is not None:
        chosen = [each for each in _CASES if case in ("", each.case)]
        rows += [_row(each, of, limits) for each in chosen if (of := _medians(result, each))]
        rows += _waits(result, limits) if case in ("", "latency") else []
        rows += _batches(result, limits) if case in ("", "sender") else []
    return Table(["", "limit", "reached", "distance", "the rest, by who spends it"], rows)


def _limits_of(result: Result) -> Limits | None:
    """Return the limits, None if they were not measured."""
    names = ("memory-copy", "crc", "socket", "semaphore", "round-trip")
    found = [median(result, "limits", name, "this machine", "cost") for name in names]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    copy, checksum, socket, semaphore, round_trip_us = known
    return Limits(
        copy, checksum, socket, semaphore, round_trip_us * 1000, median(result, "spark", "arrow", ARROW, "cost") or 0.0
    )


def _waits(result: Result, limits: Limits) -> Iterator[list[str]]:
    for rate in RATES:
        figures = _medians(result, _Case("latency", latency_variant(rate, 0), OURS, ""))
        if figures:
            title = f"6, {rate:,} records a second, linger 0, p50"
            yield _compared(title, limits.round_trip, figures["p50_ms"] * 1e6, ["wall time, not processor time"])


def _batches(result: Result, limits: Limits) -> Iterator[list[str]]:
    for partitions in PARTITIONS:
        figures = _medians(result, _Case("sender", sending_variant(partitions), ALONE, ""))
        if figures:
            title = f"8, sender alone, {plural(partitions, 'partition')}, a batch"
            least, reached = _BATCH_SIZE * (limits.checksum + limits.socket), figures["cpu_us_per_batch"] * 1000
            kernel = f"of all in the kernel {_ns(figures['system_us_per_batch'] * 1000)}"
            yield _compared(title, least, reached, [f"sender {_ns(reached - least)}", kernel])


def _row(of: _Case, figures: Mapping[str, float], limits: Limits) -> list[str]:
    records = figures["records"]
    size = figures["bytes"] / records + _RECORD_OVERHEAD
    least = {
        "producers": size * limits.copy + of.semaphores * limits.semaphore,
        "sender": size * (limits.checksum + limits.socket),
    }
    used = {
        "producers": figures["cpu_workers_s"] / records * 1e9,
        "sender": figures["cpu_sender_s"] / records * 1e9,
    }
    if of.rows:
        least["Spark with its Python"] = least.pop("producers") + of.rows * limits.row
        used["Spark with its Python"] = used.pop("producers") + figures["cpu_jvm_s"] / records * 1e9
    rest = [f"{who} {_ns(used[who] - least[who])}" for who in used if used[who] > least[who]]
    if "cpu_system_s" in figures:
        rest.append(f"of all in the kernel {_ns(figures['cpu_system_s'] / records * 1e9)}")
    return _compared(of.title, sum(least.values()), figures["cpu_us_per_record"] * 1000, rest)


def _compared(title: str, limit: float, reached: float, rest: Sequence[str]) -> list[str]:
    """Return the cells of a row, given nanoseconds."""
    return [title, _ns(limit), _ns(reached), f"{number(reached / limit)} ×", ", ".join(rest)]


def _medians(result: Result, of: _Case) -> dict[str, float]:
    measured = variant_of(result, of.case, of.variant)["contestants"].get(of.contestant, {"summary": {}})
    return {name: spread[1] for name, spread in measured["summary"].items()}


def _ns(value: float) -> str:
    return f"{number(value)} ns" if value < 10_000 else f"{number(value / 1000)} µs"


# --- of many producers with one -----------------------------------------------------------------------------


def contention_table(result: Result) -> Table:
    """Return the throughput of many producers together, as a multiple of one's: ours / confluent-kafka's."""
    many = NUMBERS[1:]
    rows = [
        [
            plural(partitions, "partition"),
            *(
                " / ".join(_times(result, producers, partitions, name) for name in (OURS, CONFLUENT))
                for producers in many
            ),
        ]
        for partitions in SHARED
    ]
    return Table([f"{OURS} / {CONFLUENT}", *(f"{producers} producers" for producers in many)], rows)


def _times(result: Result, producers: int, partitions: int, contestant: str) -> str:
    together, alone = (
        median(result, "producers", variant_name(each, partitions), contestant, "records_per_s")
        for each in (producers, 1)
    )
    return f"{number(together / alone)} ×" if together and alone else "-"


# --- where a peer is better ---------------------------------------------------------------------------------

_OURS: Final = (OURS, OUR_ASYNC, OUR_COLUMNS, EXACTLY_ONCE)
THEIRS: Final = (*PEERS, CONFLUENT_DEFAULTS, KEPT_CONFLUENT, SPARK_SINK)
_SAID_BY: Final = {
    "cpu_us_per_record": ("records_per_core_s", "mb_per_core_s", "cpu_s"),
    "cpu_s": ("records_per_core_s", "mb_per_core_s"),
    "wall_s": ("records_per_s", "mb_per_s"),
    "add_batch_s": ("took_s",),
}
"""Figures that only repeat another one."""


def losses(result: Result) -> Table:
    """Return where a peer is better, as ours ÷ theirs; if less is better, the inverse."""
    rows = []
    for case in result["cases"]:
        for variant in variants_of(result, case["name"]):
            for ours in filter(variant["contestants"].__contains__, _OURS):
                for peer in filter(variant["contestants"].__contains__, THEIRS):
                    lost = [f"{FIGURES[name]} {with_spread(found, ' ×')}" for name, found in _lost(variant, ours, peer)]
                    if lost:
                        rows.append([f"{case['number']}. {variant['title']}", ours, peer, ", ".join(lost)])
    return Table(["", "ours", "against", "ours ÷ theirs"], rows)


def _lost(variant: Result, ours: str, peer: str) -> Iterator[tuple[str, Spread]]:
    for figure in variant["figures"]:
        if figure in LESS_IS_BETTER | MORE_IS_BETTER and not is_said(figure, variant["figures"]):
            mine, other = _rounds(variant, ours, figure), _rounds(variant, peer, figure)
            found = ratio(other, mine, figure) if figure in LESS_IS_BETTER else ratio(mine, other, figure)
            if found is not None and found.median < 1:
                yield figure, found


def is_said(figure: str, figures: Sequence[str]) -> bool:
    """Return whether a figure only repeats another one of these."""
    return any(other in figures for other in _SAID_BY.get(figure, ()))


def _rounds(variant: Result, contestant: str, figure: str) -> Sequence[Result]:
    """Return the rounds with a figure, or the pooled figure of all rounds."""
    measured = variant["contestants"][contestant]
    return [measured["pooled"]] if figure in measured["pooled"] else measured["rounds"]
