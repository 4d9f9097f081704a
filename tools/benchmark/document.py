"""Renews what is generated in docs/performance.md: tables between two comments that name them. The text is by hand.

``<!-- begin NAME -->`` and ``<!-- end NAME -->`` enclose each of them; `PARTS` has the names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final

from tools.benchmark.distance import distance_table
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.results import Result, variants_of
from tools.benchmark.tables import Table, by_contestant, costs, markdown, side_by_side
from tools.benchmark.targets import target_table

_PART: Final = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def renew(text: str, result: Result) -> str:
    """Return a document with its generated parts made anew.

    Raises:
        BenchmarkError: it asks for a part that there is not.
    """

    def part(found: re.Match[str]) -> str:
        if found[2] not in PARTS:
            raise BenchmarkError(f"there is no part {found[2]!r} to generate; there are {', '.join(PARTS)}")
        return f"{found[1]}\n{PARTS[found[2]](result)}\n\n{found[3]}"

    return _PART.sub(part, text)


def _machine(result: Result) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    settings = ", ".join(f"`{name}` {value}" for name, value in result["settings"].items())
    load = machine["load_before"]
    return "\n".join(
        [
            f"- {machine['cores']} cores, {machine['cpu']}; {machine['memory_gib']} GiB of memory; {machine['kernel']}",
            f"- {versions}",
            f"- measured {result['started'][:10]}, with a load of {load} before: `{shlex.join(result['command'])}`",
            f"- for all contestants: {settings}",
        ]
    )


def _each(case: str) -> Callable[[Result], str]:
    """Return what makes a table of each variant of a case."""

    def make(result: Result) -> str:
        parts = []
        for variant in variants_of(result, case):
            table = costs([variant]) if variant["figures"] == ["cost"] else by_contestant(variant)
            facts = ", ".join(f"{name} {value}" for name, value in {**variant["facts"], **variant["settings"]}.items())
            heading = f"**{_capital(variant['title'])}** ({facts})"
            parts.append(f"{heading}\n\n{_trouble(variant) or markdown(table)}")
        return "\n\n".join(parts) or "Not measured."

    return make


def _together(case: str, *, alone: tuple[str, ...] = ()) -> Callable[[Result], str]:
    """Return what makes one table of all variants of a case, but for some that have one of their own."""

    def make(result: Result) -> str:
        variants = [variant for variant in variants_of(result, case) if not _trouble(variant)]
        common = [variant for variant in variants if variant["name"] not in alone]
        parts = [markdown(side_by_side(common))] if common else ["Not measured."]
        parts += [
            f"**{_capital(variant['title'])}**\n\n{markdown(by_contestant(variant))}"
            for variant in variants
            if variant["name"] in alone
        ]
        parts += [f"{each['title']}: {_trouble(each)}" for each in variants_of(result, case) if _trouble(each)]
        return "\n\n".join(parts)

    return make


def _limits(result: Result) -> str:
    return markdown(costs(list(variants_of(result, "limits"))))


def _table(make: Callable[[Result], Table]) -> Callable[[Result], str]:
    return lambda result: markdown(make(result))


def _trouble(variant: Result) -> str:
    return "; ".join(f"{kind}: {variant[kind]}" for kind in ("void", "missing") if kind in variant)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


PARTS: Final[Mapping[str, Callable[[Result], str]]] = {
    "machine": _machine,
    "targets": _table(target_table),
    "records": _each("records"),
    "columns": _each("columns"),
    "producers": _together("producers", alone=("one-partition", "trickle")),
    "spark": _each("spark"),
    "sizes": _together("sizes"),
    "latency": _together("latency"),
    "limits": _limits,
    "sender": _each("sender"),
    "distance": _table(distance_table),
}
