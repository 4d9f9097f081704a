"""How far each case is from what the machine gives at best, and where the processor time goes.

The limit of a record is what cannot be left out: two copies (into the slab, and by the kernel into the socket, which is
in the cost of the socket already, so that one remains), one checksum, one pass through the socket; record by record, a
turn of the semaphore too; from Spark, the transfer of a row into Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tools.benchmark.cases.latency import variant_name as latency_variant
from tools.benchmark.contestants import OUR_COLUMNS, OURS
from tools.benchmark.results import Result, median, variants_of
from tools.benchmark.spark.host import ARROW
from tools.benchmark.tables import Table, number

_RECORD_OVERHEAD: Final = 9
"""Bytes of a small record beside key and value, in format v2: lengths, deltas, attributes."""
_PARTS: Final = {
    "producers": "cpu_workers_s",
    "sender": "cpu_sender_s",
    "JVM": "cpu_jvm_s",
    "of all in the kernel": "cpu_system_s",
}
_TOO_LITTLE: Final = 0.005


class Limits(NamedTuple):
    """The costs that `tools.benchmark.cases.limits` measures, in nanoseconds."""

    byte: float
    """Of a copy, a checksum, and the way through the socket."""
    semaphore: float
    row: float
    """Of the transfer from Spark."""
    round_trip: float


def limits_of(result: Result) -> Limits | None:
    """Return the limits, None if they were not measured."""
    names = ("memory-copy", "crc", "socket", "semaphore", "round-trip")
    found = {name: median(result, "limits", name, "this machine", "cost") for name in names}
    if None in found.values():
        return None
    known: Mapping[str, Any] = found
    row = median(result, "spark", "arrow", ARROW, "cost") or 0.0
    by_byte = known["memory-copy"] + known["crc"] + known["socket"]
    return Limits(by_byte, known["semaphore"], row, known["round-trip"] * 1000)


def distance_table(result: Result) -> Table:
    """Return, for one variant of each case, its limit, what was reached, and where the rest goes."""
    limits = limits_of(result)
    rows = []
    if limits is not None:
        for case, variant, contestant, title, semaphores, transfers in (
            ("records", "apache-unkeyed", OURS, "1, `send`, unkeyed", 1, 0),
            ("records", "apache-keyed", OURS, "1, `send`, keyed", 1, 0),
            ("columns", "apache-unkeyed", OUR_COLUMNS, "2, `send_batch`", 0, 0),
            ("producers", "8-on-8", OURS, "3, 8 processes on 8 partitions", 1, 0),
            ("spark", "large", OURS, "4, data source", 0, 1),
            ("sizes", "size-10240", OURS, "5, `send`, 10 KiB", 1, 0),
            ("sizes", "size-1048576", OURS, "5, `send`, 1 MiB", 1, 0),
        ):
            figures = _medians(result, case, variant, contestant)
            if figures:
                size = figures["bytes"] / figures["records"] + _RECORD_OVERHEAD
                least = size * limits.byte + semaphores * limits.semaphore + transfers * limits.row
                reached = figures["cpu_us_per_record"] * 1000
                rows.append([title, _ns(least), _ns(reached), f"{number(reached / least)} ×", _shares(figures)])
        figures = _medians(result, "latency", latency_variant(100, 0), OURS)
        if figures:
            reached = figures["p50_ms"] * 1e6
            ratio = f"{number(reached / limits.round_trip)} ×"
            rows.append(["6, 100 records a second, p50", _ns(limits.round_trip), _ns(reached), ratio, "wall time"])
    return Table(["case", "limit", "reached, a record", "distance", "where the time is spent"], rows)


def _medians(result: Result, case: str, variant: str, contestant: str) -> dict[str, float]:
    for each in variants_of(result, case):
        if each["name"] == variant:
            summary = each["contestants"].get(contestant, {}).get("summary", {})
            return {name: spread[1] for name, spread in summary.items()}
    return {}


def _shares(figures: Mapping[str, float]) -> str:
    total = figures["cpu_s"]
    shares = {name: figures.get(figure, 0.0) / total for name, figure in _PARTS.items()}
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share > _TOO_LITTLE)


def _ns(value: float) -> str:
    return f"{number(value)} ns" if value < 10_000 else f"{number(value / 1000)} µs"
