"""Runs variants: contestants take turns, round by round; collects the results, and prints the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.errors import BenchmarkError, MissingError, VoidError
from tools.benchmark.results import Result, variant_result


class Progress:
    """Prints lines on standard error, each after the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        print(f"[{self.seconds:5.0f} s] {text.rstrip()}", file=sys.stderr, flush=True)


def run_case(
    case: Case, variants: Sequence[Variant], rounds: int, progress: Progress, *, warm_up: bool
) -> Iterator[Result]:
    """Run a case; yield its result so far after every variant."""
    progress.say(f"case {case.number}, {case.name}: {case.title}")
    done: list[Result] = []
    for variant in variants:
        done.append(run_variant(variant, rounds, progress, warm_up=warm_up))
        yield {"number": case.number, "name": case.name, "title": case.title, "variants": done}


def run_variant(variant: Variant, rounds: int, progress: Progress, *, warm_up: bool) -> Result:
    """Run a variant for the rounds that count; a turn that fails ends it, and makes its result void or missing."""
    contestants = variant.contestants
    rounds_of = {name: variant.rounds_of(name, rounds) for name in contestants}
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    trouble: dict[str, str] = {}
    began = time.monotonic()
    try:
        for number in range(0 if warm_up and variant.warm_up else 1, max(rounds_of.values()) + 1):
            for contestant in in_turn(contestants, number):
                if number <= rounds_of[contestant]:
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
    ended = "; ".join(f"{kind.upper()}: {why}" for kind, why in trouble.items())
    progress.say(f"  {variant.title} ({took_s:.0f} s) {ended}")
    return variant_result(variant, figures, trouble, took_s)


def in_turn(contestants: Sequence[str], number: int) -> list[str]:
    """Return the contestants in the order of a round: each is first in some rounds."""
    first = number % len(contestants)
    return [*contestants[first:], *contestants[:first]]
