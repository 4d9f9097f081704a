"""Runs variants: contestants take turns, round by round, and what comes of it is kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.errors import BenchmarkError, MissingError, VoidError
from tools.benchmark.results import Result, case_result, variant_result
from tools.benchmark.workshop import Workshop


class Progress:
    """Says on standard error where the run is: on one line of a terminal, or a line a variant."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Say something that stays."""
        self._write(text, "\n")

    def doing(self, text: str) -> None:
        """Say what is being done, until something else is."""
        if self._live:
            self._write(text, "")

    def _write(self, text: str, end: str) -> None:
        line = f"[{time.monotonic() - self._began:6.0f} s] {text.rstrip()}"
        print(f"\r{line}\033[K" if self._live else line, end=end, file=sys.stderr, flush=True)


def run_case(case: Case, workshop: Workshop, rounds: int, progress: Progress, keep: Callable[[Result], None]) -> None:
    """Run a case.

    Args:
        case: which.
        workshop: to work in.
        rounds: how many count.
        progress: is told of it.
        keep: is given the case's result after every variant.
    """
    progress.say(f"case {case.number}, {case.name}: {case.title}")
    done: list[Result] = []
    try:
        for variant in case.variants(workshop):
            done.append(run_variant(variant, rounds, progress, warm_up=not workshop.smoke))
            keep(case_result(case, done))
    finally:
        case.close()


def run_variant(variant: Variant, rounds: int, progress: Progress, *, warm_up: bool) -> Result:
    """Run a variant; a turn that fails ends it, and makes its result void or missing."""
    rounds = min(rounds, variant.rounds_at_most)
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in variant.contestants}
    trouble: dict[str, str] = {}
    began = time.monotonic()
    try:
        for number in range(0 if warm_up and variant.warm_up else 1, rounds + 1):
            for contestant in in_turn(variant.contestants, number):
                what = f"round {number} of {rounds}" if number else "warm-up"
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
    ended = "; ".join(f"{kind.upper()}: {why}" for kind, why in trouble.items())
    progress.say(f"  {variant.title} ({time.monotonic() - began:.0f} s) {ended}")
    return variant_result(variant, figures, trouble)


def in_turn(contestants: Sequence[str], number: int) -> list[str]:
    """Return the contestants in the order of a round: each of them begins some rounds."""
    first = number % len(contestants)
    return [*contestants[first:], *contestants[:first]]
