"""Three comparisons for the reports: with the machine's limits, of many producers with one, and where a peer is better.

The limit of a record is the work that cannot be avoided. In the producer: one copy into the slab and, record by record,
one turn of the semaphore. In the sender: one checksum and one pass through the socket, with the kernel's own copy. From
Spark: the transfer of a row into Python. The rest is attributed to the process that uses it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.benchmark.cases.base import plural
from tools.benchmark.cases.producers import NUMBERS, variant_name
from tools.benchmark.cases.producers import PARTITIONS as SHARED
from tools.benchmark.contestants import CONFLUENT, CONFLUENT_DEFAULTS, OUR_ASYNC, OUR_COLUMNS, OURS, PEERS
from tools.benchmark.results import Result, median, variant_of, variants_of
from tools.benchmark.spark.jobs import ARROW, EXACTLY_ONCE, KEPT_CONFLUENT, SPARK_SINK
from tools.benchmark.statistics import Spread, ratio
from tools.benchmark.tables import FIGURES, LESS_IS_BETTER, MORE_IS_BETTER, Table, number, with_spread

# --- with the limits --------------------------------------------------------------------------------------

_RECORD_OVERHEAD: Final = 9
"""Bytes of a small record in addition to key and value, in format v2: lengths, deltas, attributes."""
_BATCH_SIZE: Final = 16 * 1024


Limits = Mapping[str, float]
"""The costs of `tools.benchmark.cases.limits`, in nanoseconds, by the variants' names; and ``row``, from Spark."""

with Path(__file__).with_name("limits.toml").open("rb") as _file:
    _ROWS: Final[list[list[str]]] = tomllib.load(_file)["rows"]


def limit_table(result: Result, case: str = "") -> Table:
    """Return the limit, the result, and the rest by process, for one case or all."""
    limits, rows = _limits_of(result), []
    for its_case, variant, contestant, kind, title in _ROWS if limits else []:
        measured = variant_of(result, its_case, variant)["contestants"].get(contestant, {"summary": {}})
        figures = {name: spread[1] for name, spread in measured["summary"].items()}
        if figures and case in ("", its_case):
            rows.append([title, *_cells(kind, figures, limits)])
    return Table(["", "limit", "reached", "distance", "the rest, by who spends it"], rows)


def _limits_of(result: Result) -> Limits:
    """Return the limits; nothing if they were not measured."""
    names = ("memory-copy", "crc", "socket", "semaphore", "round-trip")
    found = {name: median(result, "limits", name, "this machine", "cost") for name in names}
    known = {name: cost for name, cost in found.items() if cost is not None}
    if len(known) < len(found):
        return {}
    row = median(result, "spark", "arrow", ARROW, "cost") or 0.0
    return known | {"round-trip": known["round-trip"] * 1000, "row": row}


def _cells(kind: str, figures: Mapping[str, float], limits: Limits) -> list[str]:
    of_sender = limits["crc"] + limits["socket"]
    if kind == "wait":
        return _compared(limits["round-trip"], figures["p50_ms"] * 1e6, ["wall time, not processor time"])
    if kind == "batch":
        limit, reached = _BATCH_SIZE * of_sender, figures["cpu_us_per_batch"] * 1000
        kernel = f"of all in the kernel {_ns(figures['system_us_per_batch'] * 1000)}"
        return _compared(limit, reached, [f"sender {_ns(reached - limit)}", kernel])
    records = figures["records"]
    size = figures["bytes"] / records + _RECORD_OVERHEAD
    least = {
        "producers": size * limits["memory-copy"] + (limits["semaphore"] if kind == "send" else 0.0),
        "sender": size * of_sender,
    }
    used = {
        "producers": figures["cpu_workers_s"] / records * 1e9,
        "sender": figures["cpu_sender_s"] / records * 1e9,
    }
    if kind == "spark":
        least["Spark with its Python"] = least.pop("producers") + limits["row"]
        used["Spark with its Python"] = used.pop("producers") + figures["cpu_jvm_s"] / records * 1e9
    rest = [f"{who} {_ns(used[who] - least[who])}" for who in used if used[who] > least[who]]
    if "cpu_system_s" in figures:
        rest.append(f"of all in the kernel {_ns(figures['cpu_system_s'] / records * 1e9)}")
    return _compared(sum(least.values()), figures["cpu_us_per_record"] * 1000, rest)


def _compared(limit: float, reached: float, rest: Sequence[str]) -> list[str]:
    """Return the cells of a row behind its title, given nanoseconds."""
    return [_ns(limit), _ns(reached), f"{number(reached / limit)} ×", ", ".join(rest)]


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
