"""``python -m tools.explore [--threads] [--mutants] [--long]``: the scenarios, or whether mutants are found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tools.explore
from tools.explore.mutants import LONG, MUTANTS, RACES, SCENARIOS, THREADED, Mutant
from tools.explore.run import explored, raced


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.explore", description=tools.explore.__doc__)
    parser.add_argument("--mutants", action="store_true", help="change the core, and look whether that is found")
    parser.add_argument("--long", action="store_true", help="the scenarios that take a minute and more, too")
    parser.add_argument(
        "--threads", action="store_true", help="real threads and ThreadSanitizer, in one schedule a run"
    )
    options = parser.parse_args(arguments)
    wrong = 0
    if options.threads:
        return _race(RACES if options.mutants else ())
    if options.mutants:
        for mutant in MUTANTS:
            (found,) = explored([mutant.scenario], mutant)
            is_found = found.violation is not None and mutant.said in found.violation
            wrong += not is_found
            print(f"{mutant.name:<24} {mutant.scenario!s:<82} {found.violation or 'NOT FOUND'}", flush=True)
        return int(wrong > 0)
    scenarios = (*SCENARIOS, *(LONG if options.long else ()))
    for scenario, found in zip(scenarios, explored(scenarios), strict=True):
        wrong += found.violation is not None
        what = f"{found.violation}: {found.trace}" if found.violation else "holds"
        print(f"{scenario!s:<82} {found.states:>12,} states {found.transitions:>12,} steps  {what}")
    return int(wrong > 0)


def _race(mutants: Sequence[Mutant]) -> int:
    wrong = 0
    for mutant in mutants:
        is_found = mutant.said in raced([mutant.scenario], mutant)
        wrong += not is_found
        print(f"{mutant.name:<24} {mutant.scenario!s:<82} {mutant.said if is_found else 'NOT FOUND'}", flush=True)
    if not mutants and (report := raced(THREADED)):
        wrong = 1
        print(report, file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
