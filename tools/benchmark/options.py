"""The command-line options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tools.benchmark
from tools.benchmark.cases import CASES

_EPILOG: Final = """\
Exit status: 0 if everything requested was measured, 1 if something is void or missing (the report has the reason), 2 if
it could not run, 130 if it was interrupted. Progress goes to standard error, the report to standard output.

examples:
  python -m tools.benchmark --list
  python -m tools.benchmark --all --json bench.json
  python -m tools.benchmark --case records columns --rounds 7
  python -m tools.benchmark --all --json bench.json --plots docs --document docs/performance.md
  python -m tools.benchmark --case records columns sender --regress HEAD~20
  python -m tools.benchmark --from bench.json --plots docs --document docs/performance.md docs/performance/tables.md
"""
DEFAULT_ROUNDS: Final = 5


Options = argparse.Namespace


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark",
        description=tools.benchmark.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--all", action="store_true", help="all cases; about 70 minutes on two quiet cores")
    add("--case", dest="cases", metavar="CASE", nargs="+", default=[], help="these, by number or name; see --list")
    add("--variant", dest="variants", metavar="NAME", nargs="+", default=[], help="of these cases, only these variants")
    add("--rounds", metavar="R", type=_count, help=f"rounds that count [{DEFAULT_ROUNDS}; smoke: 1]")
    add("--scale", metavar="X", type=_positive, help="how large the loads are [1]")
    add("--smoke", action="store_true", help="every case with a minimal load: only shows that it works")
    add("--lines", metavar="FILE", type=Path, help="a file whose lines case 11 sends, too, such as a web server's log")
    add("--ours", action="store_true", help="only our own contestants, without peers")
    regress = "measure this checkout and COMMIT in turns; exit status 1 if a figure got worse by more than its noise"
    add("--regress", dest="base", metavar="COMMIT", default="", help=regress)
    add("--list", action="store_true", help="show the cases and their variants, and measure nothing")
    add("--json", metavar="FILE", type=Path, help="write everything that was measured to FILE, after every variant")
    add("--from", dest="result", metavar="FILE", type=Path, help="measure nothing, use the result of --json FILE")
    add("--plots", metavar="DIRECTORY", type=Path, help="write the plots, as SVG, into DIRECTORY")
    documents = "renew the tables of each FILE in their places: docs/performance.md docs/performance/tables.md"
    add("--document", dest="documents", metavar="FILE", nargs="+", type=Path, default=[], help=documents)
    options = parser.parse_args(arguments)
    try:
        names = [case_name(each) for each in options.cases]
    except ValueError as error:
        parser.error(str(error))
    if options.all and names:
        parser.error("--all and --case: which? --all takes in every case")
    if options.variants and not names:
        parser.error("--variant NAME ...: of which case? Say --case CASE ..., too; --list shows both")
    names = list(CASES) if options.all or (options.smoke and not names) else names
    if options.base and (options.json or options.plots or options.documents or options.result or options.smoke):
        parser.error("--regress COMMIT prints its result: leave out --json, --plots, --document, --from and --smoke")
    if options.result is not None and (names or options.rounds or options.scale or options.json):
        parser.error("--from FILE measures nothing: leave out --all, --case, --smoke, --rounds, --scale and --json")
    if not (names or options.list or options.result):
        parser.error("nothing to do: say --all, --case CASE ..., --smoke, --list, or --from FILE")
    if options.lines is not None and names and "jvm" not in names:
        parser.error("--lines FILE: only case 11 sends them, add --case jvm")
    for option, paths in {"from": [options.result], "lines": [options.lines], "document": options.documents}.items():
        for path in paths:
            if path is not None and not path.is_file():
                parser.error(f"--{option} {path}: there is no such file")
    for option, directory in {"json": options.json and options.json.absolute().parent, "plots": options.plots}.items():
        if directory is not None and not directory.is_dir():
            parser.error(f"--{option}: there is no such directory as {directory}")
    options.cases = [name for name in CASES if name in names]
    options.rounds = options.rounds or (1 if options.smoke else DEFAULT_ROUNDS)
    options.scale = options.scale or 1.0
    return options


def case_name(text: str) -> str:
    """Return the name of a case, given by name or number.

    Raises:
        ValueError: there is no such case; the text lists the cases.
    """
    for case in CASES.values():
        if text in (case.name, str(case.number)):
            return case.name
    known = ", ".join(f"{case.number} {case.name}" for case in CASES.values())
    raise ValueError(f"there is no case {text!r}; the cases are: {known}")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1000")
    return number
