"""Compares this checkout with an earlier commit: which of our figures got worse by more than their noise.

Both are measured by the tools of this checkout, without peers, and take turns round by round, each round in a new
process. The earlier commit is checked out beside it, and its core is built. A figure is worse if the median of the
rounds' ratios is, if it is off by more than the distance of their quartiles, and by more than `LEAST`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tools.benchmark.comparisons import is_said
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.results import Result, load, trouble_of
from tools.benchmark.statistics import Spread, ratio, summary
from tools.benchmark.tables import LESS_IS_BETTER, MORE_IS_BETTER

LEAST: Final = 0.02
"""Changes below it are not named, however quiet the machine."""
_ROOT: Final = Path(__file__).resolve().parents[2]


class Change(NamedTuple):
    """A figure of both commits."""

    where: str
    figure: str
    ratio: Spread
    """Of the rounds: above 1 is better now."""

    @property
    def is_worse(self) -> bool:
        """Whether it got worse by more than its noise."""
        return 1 - self.ratio.median > max(LEAST, self.ratio.high - self.ratio.low)


def regress(base: str, cases: Sequence[str], rounds: int, scale: float) -> list[Change]:
    """Measure both commits, the earlier one as git names it; return all figures."""
    results: dict[str, list[Result]] = {"base": [], "now": []}
    with tempfile.TemporaryDirectory(prefix="shmaccum-regress-") as name, _checked_out(base, Path(name)) as tree:
        places = {"base": tree, "now": _ROOT}
        for number in range(rounds):
            for side in sorted(places, reverse=number % 2 == 1):
                print(
                    f"round {number + 1} of {rounds}: {base if side == 'base' else 'this'}", file=sys.stderr, flush=True
                )
                results[side].append(_measure(places[side], Path(name) / "result.json", cases, scale))
    return changes(results["base"], results["now"])


def changes(base: Sequence[Result], now: Sequence[Result]) -> list[Change]:
    """Return the figures of both, from results of one round each. A void or missing variant is an error."""
    found = []
    before, after = ([_figures(each) for each in side] for side in (base, now))
    for where, figures in before[0].items():
        for figure in figures:
            old, new = ([result[where] for result in side if where in result] for side in (before, after))
            compared = ratio(old, new, figure) if figure in LESS_IS_BETTER else ratio(new, old, figure)
            if compared is not None and figure in LESS_IS_BETTER | MORE_IS_BETTER:
                found.append(Change(where, figure, compared))
    return found


def _figures(result: Result) -> dict[str, Mapping[str, float]]:
    """Return the figures of the round, by case, variant and contestant: medians where a variant runs more often."""
    found: dict[str, Mapping[str, float]] = {}
    for case in result["cases"]:
        for variant in case["variants"]:
            if trouble := trouble_of(variant):
                raise BenchmarkError(f"{case['name']}/{variant['name']} is {trouble}")
            for name, contestant in variant["contestants"].items():
                figures = {figure: of.median for figure, of in summary(contestant["rounds"]).items()}
                kept = {each: figures[each] for each in variant["figures"] if each in figures}
                found[f"{case['name']}/{variant['name']}, {name}"] = {
                    each: value for each, value in kept.items() if not is_said(each, list(kept))
                }
    return found


@contextmanager
def _checked_out(base: str, directory: Path) -> Iterator[Path]:
    """Yield a directory with the package of a commit, built, and the tools of this one."""
    tree = directory / "commit"
    _run(["git", "worktree", "add", "--detach", str(tree), base], _ROOT)
    try:
        _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], tree)
        place = directory / "base"
        place.mkdir()
        for name, where in (("shmaccum", tree), ("tools", _ROOT), (".kafka", _ROOT)):
            (place / name).symlink_to(where / name)
        yield place
    finally:
        _run(["git", "worktree", "remove", "--force", str(tree)], _ROOT)


def _measure(place: Path, file: Path, cases: Sequence[str], scale: float) -> Result:
    command = [sys.executable, "-m", "tools.benchmark", "--ours", "--rounds", "1", "--scale", f"{scale:g}"]
    _run([*command, "--json", str(file), "--case", *cases], place)
    return load(file)


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-2000:]}")


def as_text(found: Sequence[Change]) -> str:
    """Return a line for each figure, the worst first."""
    lines = []
    for each in sorted(found, key=lambda each: each.ratio.median):
        low, median, high = each.ratio
        mark = "WORSE" if each.is_worse else ""
        lines.append(f"{mark:5} {median:6.3f} × ({low:.3f} - {high:.3f})  {each.where}: {each.figure}")
    return "\n".join(["now, as times of before; above 1 is better:", *lines])
