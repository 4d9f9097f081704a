"""``python -m tools.model [--full] [--mutant NAME] [--jobs N]``: checks the models and their mutants."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tools.model import check
from tools.model.check import INSTALL, check_all, missing_tools
from tools.model.runs import BRIEF, FULL, MUTANTS, Run


def main(arguments: Sequence[str] | None = None) -> int:
    names = [mutant.name for mutant in MUTANTS]
    parser = argparse.ArgumentParser(prog="python -m tools.model", description=check.__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the large sizes, too: many minutes and up to 8 GiB")
    parser.add_argument("--mutant", choices=names, metavar="NAME", help=f"this mutant only: {', '.join(names)}")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (1)")
    options = parser.parse_args(arguments)
    missing = missing_tools()
    if missing:
        sys.exit(f"{missing}: sudo {' '.join(INSTALL)}")
    runs: Sequence[Run] = [*BRIEF, *(FULL if options.full else ()), *MUTANTS]
    if options.mutant:
        runs = [run for run in MUTANTS if run.name == options.mutant]
    return 0 if check_all(runs, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
