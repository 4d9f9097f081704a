"""The command-line options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tools.benchmark
from tools.benchmark.cases import CASES
from tools.support.arguments import command_line

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
    parser = command_line("benchmark", tools.benchmark.__doc__, _EPILOG)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true", help="all cases; about 70 minutes on two quiet cores")
    these = "these, by number or name; see --list"
    what.add_argument("--case", dest="cases", metavar="CASE", nargs="+", type=case_name, default=[], help=these)
    shown = "show the cases and their variants, and measure nothing"
    what.add_argument("--list", action="store_true", help=shown)
    result = "measure nothing, use the result of --json FILE"
    what.add_argument("--from", dest="result", metavar="FILE", type=_file, help=result)
    add = parser.add_argument
    add("--variant", dest="variants", metavar="NAME", nargs="+", default=[], help="of these cases, only these variants")
    add("--rounds", metavar="R", type=int, help=f"rounds that count [{DEFAULT_ROUNDS}; smoke: 1]")
    add("--scale", metavar="X", type=float, default=1.0, help="how large the loads are [1]")
    add("--smoke", action="store_true", help="every variant with a minimal load: only shows that it works")
    add("--lines", metavar="FILE", type=_file, help="a file whose lines case 11 sends, too, such as a web server's log")
    add("--ours", action="store_true", help="only our own contestants, without peers")
    regress = "measure this checkout and COMMIT in turns; exit status 1 if a figure got worse by more than its noise"
    add("--regress", dest="base", metavar="COMMIT", default="", help=regress)
    add("--json", metavar="FILE", type=_new_file, help="write everything that was measured to FILE, after each variant")
    add("--plots", metavar="DIRECTORY", type=_directory, help="write the plots, as SVG, into DIRECTORY")
    documents = "renew the tables of each FILE in their places: docs/performance.md docs/performance/tables.md"
    add("--document", dest="documents", metavar="FILE", nargs="+", type=_file, default=[], help=documents)
    options = parser.parse_args(arguments)
    if options.base and (options.json or options.plots or options.documents or options.smoke or options.result):
        parser.error("--regress COMMIT prints its result: leave out --json, --plots, --document, --from and --smoke")
    if options.result and (options.json or options.variants or options.rounds or options.smoke or options.ours):
        parser.error("--from FILE measures nothing: leave out --json, --variant, --rounds, --smoke and --ours")
    options.cases = [name for name in CASES if options.all or name in options.cases]
    if options.lines and options.cases and "jvm" not in options.cases:
        parser.error("--lines FILE: only case 11 sends them, add --case jvm")
    options.rounds = (1 if options.smoke else DEFAULT_ROUNDS) if options.rounds is None else options.rounds
    if options.rounds < 1 or not 0 < options.scale <= 1000:
        parser.error("--rounds has to be above 0, and --scale above 0 and up to 1000")
    return options


def case_name(text: str) -> str:
    for case in CASES.values():
        if text in (case.name, str(case.number)):
            return case.name
    known = ", ".join(f"{case.number} {case.name}" for case in CASES.values())
    raise argparse.ArgumentTypeError(f"there is no case {text!r}; the cases are: {known}")


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return Path(text)


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no such directory")
    return Path(text)


def _new_file(text: str) -> Path:
    return _directory(str(Path(text).absolute().parent)) / Path(text).name
