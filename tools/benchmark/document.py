"""The report of a run for a terminal, and the tables of docs/performance.md and docs/performance/tables.md.

The documents' text is written by hand.
``<!-- begin NAME -->`` and ``<!-- end NAME -->`` enclose each table; `PARTS` has the names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tools.benchmark.brokers import TITLES
from tools.benchmark.cases.limits import FIGURE
from tools.benchmark.comparisons import contention_table, limit_table, losses
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.results import Result, incomplete, trouble_of, variants_of
from tools.benchmark.tables import Table, by_contestant, costs, markdown, plain, side_by_side
from tools.benchmark.targets import target_table

_FEWEST_ROUNDS: Final = 3
_PART: Final = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def renew(text: str, result: Result) -> str:

    def part(found: re.Match[str]) -> str:
        if found[2] not in PARTS:
            raise BenchmarkError(f"there is no part {found[2]!r} to generate; the parts are {', '.join(PARTS)}")
        return f"{found[1]}\n{PARTS[found[2]](result)}\n\n{found[3]}"

    return _PART.sub(part, text)


def _machine(result: Result) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    settings = ", ".join(f"`{name}` {value}" for name, value in result["settings"].items())
    load = machine["load_before"]
    return _caution(result) + "\n".join(
        [
            f"- {machine['cores']} cores, {machine['cpu']}; {machine['memory_gib']} GiB of memory; {machine['kernel']}",
            f"- {versions}",
            f"- commit {result['commit']}, {result['started'][:10]}, in {minutes(result['took_s'])}, with a load of "
            f"{load} before, {_extent(result)}: `{shlex.join(result['command'])}`",
            f"- for all contestants: {settings}",
        ]
    )


def minutes(seconds: float) -> str:
    """Return a time for people, to the minute."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _caution(result: Result) -> str:
    """Return a warning about the figures, if there is a reason for one."""
    machine = result["machine"]
    reasons = [
        ("less than the whole load, where what happens once weighs more than it should", result["scale"] < 1),
        (f"fewer than {_FEWEST_ROUNDS} rounds", result["rounds"] < _FEWEST_ROUNDS),
        ("a machine that had other things to do", machine["load_before"] > machine["cores"] / 2),
    ]
    given = [reason for reason, is_so in reasons if is_so]
    return f"**These figures are preliminary**: they come from {'; '.join(given)}.\n\n" if given else ""


def _extent(result: Result) -> str:
    rounds = "one round" if result["rounds"] == 1 else f"{result['rounds']} rounds"
    return rounds if result["scale"] == 1 else f"{rounds} with {result['scale']:g} of the load"


def _with_distance(case: str, make: Callable[[Result], str]) -> Callable[[Result], str]:
    """Return a function that adds a case's distance from its limit."""

    def both(result: Result) -> str:
        table = limit_table(result, case)
        title = "\n\n**How far from the limit** (see [the limits](#7-the-limits))\n\n"
        return make(result) + (f"{title}{markdown(table)}" if table.rows else "")

    return both


def _losses(result: Result) -> str:
    table = losses(result)
    return markdown(table) if table.rows else "Nowhere in what was measured."


def _each(case: str) -> Callable[[Result], str]:
    """Return a function that renders a table for each variant of a case."""

    def make(result: Result) -> str:
        parts = []
        for variant in variants_of(result, case):
            facts = ", ".join(f"{name} {value}" for name, value in {**variant["facts"], **variant["settings"]}.items())
            heading = f"**{_capital(variant['title'])}** ({facts})"
            parts.append(f"{heading}\n\n{trouble_of(variant) or markdown(_own_table(variant))}")
        return "\n\n".join(parts) or "Not measured."

    return make


def _together(case: str, *, alone: tuple[str, ...] = ()) -> Callable[[Result], str]:
    """Return a function that renders one table of a case's variants, except some with tables of their own."""

    def make(result: Result) -> str:
        variants = [variant for variant in variants_of(result, case) if not trouble_of(variant)]
        common = [variant for variant in variants if variant["name"] not in alone]
        parts = [markdown(side_by_side(common))] if common else ["Not measured."]
        parts += [
            f"**{_capital(variant['title'])}**\n\n{markdown(by_contestant(variant))}"
            for variant in variants
            if variant["name"] in alone
        ]
        parts += [f"{each['title']}: {trouble_of(each)}" for each in variants_of(result, case) if trouble_of(each)]
        return "\n\n".join(parts)

    return make


def _limits(result: Result) -> str:
    from_spark = (variant for variant in variants_of(result, "spark") if variant["figures"] == [FIGURE])
    return markdown(costs([*variants_of(result, "limits"), *from_spark]))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


PARTS: Final[Mapping[str, Callable[[Result], str]]] = {
    "machine": _machine,
    "targets": lambda result: markdown(target_table(result)),
    "records": _with_distance("records", _each("records")),
    "columns": _with_distance("columns", _each("columns")),
    "producers": _with_distance("producers", _together("producers", alone=("one-partition", "trickle"))),
    "contention": lambda result: markdown(contention_table(result)),
    "spark": _with_distance("spark", _each("spark")),
    "sizes": _with_distance("sizes", _together("sizes")),
    "latency": _with_distance("latency", _together("latency")),
    "limits": _limits,
    "sender": _with_distance("sender", _each("sender")),
    "exactly-once": _each("exactly-once"),
    "jvm": _each("jvm"),
    "losses": _losses,
}


# --- for a terminal ---------------------------------------------------------------------------------------


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
        yield f"\n{title}\n{plain(table)}"
    if wrong := incomplete(result):
        yield "\nNOT COMPLETE"
        yield from (f"    {line}" for line in wrong)


def _variant_lines(variant: Result) -> Iterator[str]:
    broker = variant["broker"]
    into = f", into {TITLES[broker]}" if broker and TITLES[broker] not in variant["title"] else ""
    yield f"\n  {variant['title']}{into}"
    if differing := {**variant["facts"], **variant["settings"]}:
        yield "    " + ", ".join(f"{name} {value}" for name, value in differing.items())
    for kind in ("void", "missing"):
        if kind in variant:
            yield f"    {kind.upper()}: {variant[kind]}"
            return
    yield plain(_own_table(variant))


def _own_table(variant: Result) -> Table:
    return costs([variant]) if variant["figures"] == [FIGURE] else by_contestant(variant)
