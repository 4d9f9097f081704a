"""The report of a run, for a terminal: every variant, the limits, and the targets."""

from __future__ import annotations

from collections.abc import Iterator

from tools.benchmark.brokers import TITLES
from tools.benchmark.contention import contention_table
from tools.benchmark.limit_comparison import limit_table
from tools.benchmark.losses import losses
from tools.benchmark.results import Result, incomplete
from tools.benchmark.tables import by_contestant, costs, plain
from tools.benchmark.targets import target_table


def as_text(result: Result) -> str:
    """Return the report: medians, with quartiles in parentheses; ratios are ours ÷ theirs, medians too."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    yield "For all contestants: " + ", ".join(f"{name} {value}" for name, value in result["settings"].items())
    for case in result["cases"]:
        yield f"\n{case['number']}. {case['title']}"
        for variant in case["variants"]:
            yield from _variant_lines(variant)
    tables = {
        "Against one producer (records a second)": contention_table(result),
        "How far from the limit": limit_table(result),
        "Where a peer is better": losses(result),
        "Targets": target_table(result),
    }
    for title, table in tables.items():
        yield f"\n{title}"
        yield plain(table)
    wrong = incomplete(result)
    if wrong:
        yield "\nNOT COMPLETE"
        yield from (f"    {line}" for line in wrong)


def _variant_lines(variant: Result) -> Iterator[str]:
    broker = variant["broker"]
    into = f", into {TITLES[broker]}" if broker and TITLES[broker] not in variant["title"] else ""
    yield f"\n  {variant['title']}{into}"
    differing = {**variant["facts"], **variant["settings"]}
    if differing:
        yield "    " + ", ".join(f"{name} {value}" for name, value in differing.items())
    for kind in ("void", "missing"):
        if kind in variant:
            yield f"    {kind.upper()}: {variant[kind]}"
            return
    yield plain(costs([variant]) if variant["figures"] == ["cost"] else by_contestant(variant))
