"""Finds every figure in which a peer is better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tools.benchmark.contestants import CONFLUENT_DEFAULTS, OUR_ASYNC, OUR_COLUMNS, OURS, PEERS
from tools.benchmark.results import Result, variants_of
from tools.benchmark.spark.jobs import EXACTLY_ONCE, KEPT_CONFLUENT, SPARK_SINK
from tools.benchmark.statistics import Spread, ratio
from tools.benchmark.tables import FIGURES, LESS_IS_BETTER, MORE_IS_BETTER, Table, with_spread

_OURS: Final = (OURS, OUR_ASYNC, OUR_COLUMNS, EXACTLY_ONCE)
THEIRS: Final = (*PEERS, CONFLUENT_DEFAULTS, KEPT_CONFLUENT, SPARK_SINK)
"""Contestants that are not ours."""
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
                    lost = [
                        f"{FIGURES[figure]} {with_spread(found, ' ×')}" for figure, found in _lost(variant, ours, peer)
                    ]
                    if lost:
                        rows.append([f"{case['number']}. {variant['title']}", ours, peer, ", ".join(lost)])
    return Table(["", "ours", "against", "ours ÷ theirs"], rows)


def _lost(variant: Result, ours: str, peer: str) -> Iterator[tuple[str, Spread]]:
    for figure in variant["figures"]:
        if figure not in LESS_IS_BETTER | MORE_IS_BETTER or is_said(figure, variant["figures"]):
            continue
        mine, other = (_rounds(variant, name, figure) for name in (ours, peer))
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
