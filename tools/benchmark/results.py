"""The result of a benchmark as JSON: the source of report, plots and document.

```
{"format": 3, "commit": what was measured, "started": ISO time, "took_s": 1.0, "command": [...], "scale": 1.0,
 "rounds": 3, "machine": {...}, "settings": {...},
 "cases": [{"number": 1, "name": "records", "title": ..., "variants": [
     {"name": ..., "title": ..., "broker": ..., "settings": {what differs}, "facts": {...}, "figures": [names to show],
      "took_s": 1.0, "void": why, or absent, "missing": why, or absent,
      "contestants": {name: {"rounds": [{figure: number}], "pooled": {figure: number of all rounds together},
                             "summary": {figure: [low, median, high]}}},
      "ratios": {peer: {figure: [low, median, high] of the first contestant's by the peer's}}}]}]}
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.benchmark.cases.base import Variant
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.settings import difference
from tools.benchmark.statistics import Figures, Spread, ratio, summary

FORMAT: Final = 3

Result = Mapping[str, Any]
"""The whole result, or one variant's part."""


def variant_result(
    variant: Variant, rounds: Mapping[str, Sequence[Figures]], trouble: Mapping[str, str], took_s: float
) -> Result:
    """Return a variant's result, given each contestant's rounds; ``trouble`` is why it is void or missing, if it is."""
    first = next(iter(rounds))
    pooled = {name: {} if trouble else _rounded(variant.pooled(name)) for name in rounds}
    ratios = {}
    for peer in list(rounds)[1:]:
        compared = {name: ratio(rounds[first], rounds[peer], name) for name in variant.figures}
        compared |= {name: ratio([pooled[first]], [pooled[peer]], name) for name in pooled[first]}
        ratios[peer] = {name: each for name, each in compared.items() if each is not None}
    return {
        "name": variant.name,
        "title": variant.title,
        "broker": variant.broker,
        "settings": difference(variant.settings),
        "facts": dict(variant.facts),
        "figures": list(variant.figures),
        "took_s": round(took_s, 1),
        **trouble,
        "contestants": {
            name: {
                "rounds": [_rounded(each) for each in figures],
                "pooled": pooled[name],
                "summary": summary(list(map(_rounded, figures))) | summary([pooled[name]]),
            }
            for name, figures in rounds.items()
        },
        "ratios": ratios,
    }


def _rounded(figures: Figures) -> dict[str, float]:
    """Return figures rounded to meaningful digits."""
    return {name: float(f"{value:.6g}") for name, value in figures.items()}


def variants_of(result: Result, case: str) -> Iterator[Result]:
    """Yield the variants of a case, by its name; none if it did not run."""
    for each in result["cases"]:
        if each["name"] == case:
            yield from each["variants"]


def variant_of(result: Result, case: str, variant: str) -> Result:
    """Return a variant; one without contestants if it was not measured."""
    return next((each for each in variants_of(result, case) if each["name"] == variant), {"contestants": {}})


def spread_of(result: Result, case: str, variant: str, contestant: str, figure: str) -> Spread | None:
    """Return the quartiles of a figure, None if it was not measured."""
    measured = variant_of(result, case, variant)["contestants"].get(contestant)
    found = measured and measured["summary"].get(figure)
    return Spread(*found) if found else None


def median(result: Result, case: str, variant: str, contestant: str, figure: str) -> float | None:
    """Return the median of a figure, None if it was not measured."""
    found = spread_of(result, case, variant, contestant, figure)
    return None if found is None else found.median


def ratio_of(result: Result, case: str, variant: str, peer: str, figure: str, ours: str = "") -> Spread | None:
    """Return our figure ÷ a peer's, None if it was not measured; ``ours`` is the contestant, if not the first."""
    contestants = variant_of(result, case, variant)["contestants"]
    first = ours or next(iter(contestants), "")
    if first not in contestants or peer not in contestants:
        return None
    return ratio(contestants[first]["rounds"], contestants[peer]["rounds"], figure)


def trouble_of(variant: Result) -> str:
    """Return why a variant is void or missing, in a line; empty if it is neither."""
    return "; ".join(
        f"{kind}: {variant[kind].partition(chr(10))[0]}" for kind in ("void", "missing") if kind in variant
    )


def incomplete(result: Result) -> list[str]:
    """Return what is void, missing, or lacks a figure that its table shows."""
    found = []
    for case in result["cases"]:
        for variant in case["variants"]:
            where = f"{case['name']}/{variant['name']}"
            wrong = trouble_of(variant)
            if wrong:
                found.append(f"{where} is {wrong}")
                continue
            for name, contestant in variant["contestants"].items():
                lacking = [each for each in variant["figures"] if each not in contestant["summary"]]
                if not contestant["rounds"] or lacking:
                    found.append(f"{where} has no {', '.join(lacking) or 'round'} of {name}")
    return found


def load(path: Path) -> Result:
    again = "measure again, by --all --json FILE"
    try:
        result = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkError(f"cannot read {path}: {error}") from None
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"{path} is not complete JSON ({error}): {again}") from None
    form = result.get("format") if isinstance(result, dict) else None
    if form is None:
        raise BenchmarkError(f"{path} is not a result of python -m tools.benchmark --json")
    if form != FORMAT:
        raise BenchmarkError(f"{path} is of format {form}, this version of the tool has {FORMAT}: {again}")
    found: Result = result
    return found
