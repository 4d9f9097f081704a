"""Runs variants: contestants take turns, round by round; collects the results, and prints the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.errors import BenchmarkError, MissingError, VoidError
from tools.benchmark.results import Result, case_result, variant_result


class Progress:
    """Progress on standard error: on one line of a terminal, or one line per variant."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._done_s = self._took_s = 0.0
        self.expected_s = 0.0
        """Of the whole run, about."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(text, "\n")

    def doing(self, text: str) -> None:
        """Show the current activity until the next one."""
        if self._live:
            self._write(text, "")

    def done(self, expected_s: float, took_s: float) -> None:
        """Record the real duration of a step, to correct the estimate."""
        self._done_s += expected_s
        self._took_s += took_s

    def _write(self, text: str, end: str) -> None:
        left = ""
        if 0 < self._done_s < self.expected_s:
            left = f", {minutes((self.expected_s - self._done_s) * self._took_s / self._done_s)} left"
        line = f"[{self.seconds:5.0f} s{left}] {text.rstrip()}"
        print(f"\r{line}\033[K" if self._live else line, end=end, file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """Return a time for people, to the minute."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def run_case(
    case: Case,
    variants: Sequence[Variant],
    rounds: int,
    progress: Progress,
    keep: Callable[[Result], None],
    *,
    warm_up: bool,
) -> None:
    """Run a case.

    Args:
        case: which.
        variants: of it.
        rounds: number of rounds that count.
        progress: receives messages.
        keep: called with the case's result after every variant.
        warm_up: whether a warm-up round comes first, if the variant wants it.
    """
    progress.say(f"case {case.number}, {case.name}: {case.title}")
    done: list[Result] = []
    for variant in variants:
        done.append(run_variant(variant, rounds, progress, warm_up=warm_up))
        keep(case_result(case, done))


def run_variant(variant: Variant, rounds: int, progress: Progress, *, warm_up: bool) -> Result:
    """Run a variant; a turn that fails ends it, and makes its result void or missing."""
    contestants = variant.contestants
    rounds_of = {name: variant.rounds_of(name, rounds) for name in contestants}
    most = max(rounds_of.values())
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    trouble: dict[str, str] = {}
    began = time.monotonic()
    try:
        for number in range(0 if warm_up and variant.warm_up else 1, most + 1):
            for contestant in in_turn(contestants, number):
                if number > rounds_of[contestant]:
                    continue
                what = f"round {number} of {most}" if number else "warm-up"
                progress.doing(f"  {variant.title}: {what}, {contestant}")
                came_to = variant.turn(contestant)
                if number:
                    figures[contestant].append(came_to)
    except MissingError as error:
        trouble["missing"] = str(error)
    except VoidError as error:
        trouble["void"] = str(error)
    except BenchmarkError as error:
        trouble["void"] = f"it failed: {error}"
    took_s = time.monotonic() - began
    progress.done(variant.expected_s(rounds), took_s)
    ended = "; ".join(f"{kind.upper()}: {why}" for kind, why in trouble.items())
    progress.say(f"  {variant.title} ({took_s:.0f} s) {ended}")
    return variant_result(variant, figures, trouble, took_s)


def in_turn(contestants: Sequence[str], number: int) -> list[str]:
    """Return the contestants in the order of a round: each is first in some rounds."""
    first = number % len(contestants)
    return [*contestants[first:], *contestants[:first]]
