"""The result of a benchmark, as JSON has it: what the report, the plots and the document are made from.

```
{"format": 1, "started": ISO time, "command": [...], "scale": 1.0, "rounds": 3, "machine": {...}, "settings": {...},
 "cases": [{"number": 1, "name": "records", "title": ..., "variants": [
     {"name": ..., "title": ..., "broker": ..., "settings": {what differs}, "facts": {...}, "figures": [names to show],
      "void": why, or absent, "missing": why, or absent,
      "contestants": {name: {"rounds": [{figure: number}], "summary": {figure: [low, median, high]}}},
      "ratios": {peer: {figure: ours by theirs}}}]}]}
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.settings import difference
from tools.benchmark.statistics import Figures, ratio, summary

FORMAT: Final = 1

Result = Mapping[str, Any]
"""All of it, or one variant's part."""


def case_result(case: Case, variants: Sequence[Result]) -> dict[str, Any]:
    """Return the result of a case."""
    return {"number": case.number, "name": case.name, "title": case.title, "variants": list(variants)}


def variant_result(variant: Variant, rounds: Mapping[str, Sequence[Figures]], trouble: Mapping[str, str]) -> Result:
    """Return the result of a variant.

    Args:
        variant: what was measured.
        rounds: what each contestant came to, in each round.
        trouble: ``void`` or ``missing`` -> why, or nothing.
    """
    first = variant.contestants[0]
    ratios = {}
    for peer in variant.contestants[1:]:
        compared = {name: ratio(rounds[first], rounds[peer], name) for name in variant.figures}
        ratios[peer] = {name: each for name, each in compared.items() if each is not None}
    return {
        "name": variant.name,
        "title": variant.title,
        "broker": variant.broker,
        "settings": difference(variant.settings),
        "facts": dict(variant.facts),
        "figures": list(variant.figures),
        **trouble,
        "contestants": {
            name: {"rounds": [_rounded(each) for each in figures], "summary": summary(list(map(_rounded, figures)))}
            for name, figures in rounds.items()
        },
        "ratios": ratios,
    }


def _rounded(figures: Figures) -> dict[str, float]:
    """Return figures with as many digits as can mean something."""
    return {name: float(f"{value:.6g}") for name, value in figures.items()}


def variants_of(result: Result, case: str) -> Iterator[Result]:
    """Yield the variants of a case, by its name; none if it did not run."""
    for each in result["cases"]:
        if each["name"] == case:
            yield from each["variants"]


def median(result: Result, case: str, variant: str, contestant: str, figure: str) -> float | None:
    """Return the median of a figure, None if it was not measured."""
    for each in variants_of(result, case):
        if each["name"] == variant and contestant in each["contestants"]:
            found = each["contestants"][contestant]["summary"].get(figure)
            return None if found is None else float(found[1])
    return None


def ratio_of(result: Result, case: str, variant: str, peer: str, figure: str) -> float | None:
    """Return how many times a peer's figure ours is, None if it was not measured."""
    for each in variants_of(result, case):
        if each["name"] == variant:
            found = each["ratios"].get(peer, {}).get(figure)
            return None if found is None else float(found)
    return None


def incomplete(result: Result) -> list[str]:
    """Return what is void, missing, or lacks a figure that its table shows."""
    found = []
    for case in result["cases"]:
        for variant in case["variants"]:
            where = f"{case['name']}/{variant['name']}"
            found += [f"{where} is {kind}: {variant[kind]}" for kind in ("void", "missing") if kind in variant]
            if "void" in variant or "missing" in variant:
                continue
            for name, contestant in variant["contestants"].items():
                lacking = [each for each in variant["figures"] if each not in contestant["summary"]]
                if not contestant["rounds"] or lacking:
                    found.append(f"{where} has no {', '.join(lacking) or 'round'} of {name}")
    return found
