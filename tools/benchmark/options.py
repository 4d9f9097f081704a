"""The command-line options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Options:
    """The options; see `parse`."""

    cases: Sequence[str]
    variants: Sequence[str]
    rounds: int
    scale: float
    smoke: bool
    lines: Path | None
    list: bool
    json: Path | None
    result: Path | None
    plots: Path | None
    documents: Sequence[Path]
    ours: bool
    base: str


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark",
        description=tools.benchmark.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--all", action="store_true", help="all cases; about 50 minutes on two quiet cores")
    add("--case", metavar="CASE", nargs="+", default=[], help="these, by number or name; --list shows them")
    add("--variant", metavar="NAME", nargs="+", default=[], help="of these cases, only the variants of these names")
    add("--rounds", metavar="R", type=_count, help=f"rounds that count [{DEFAULT_ROUNDS}; smoke: 1]")
    add("--scale", metavar="X", type=_positive, help="how large the loads are [1]")
    add("--smoke", action="store_true", help="every case with a minimal load: only shows that it works")
    add("--lines", metavar="FILE", type=Path, help="a file whose lines case 11 sends, too, such as a web server's log")
    add("--ours", action="store_true", help="only our own contestants, without peers")
    add(
        "--regress",
        dest="base",
        metavar="COMMIT",
        default="",
        help="compare our figures with an earlier commit's, in turns; fail if one is worse by more than its noise",
    )
    add("--list", action="store_true", help="show the cases and their variants, and measure nothing")
    add("--json", metavar="FILE", type=Path, help="write everything that was measured to FILE, after every variant")
    add("--from", dest="result", metavar="FILE", type=Path, help="measure nothing, use the result of --json FILE")
    add("--plots", metavar="DIRECTORY", type=Path, help="write the plots, as SVG, into DIRECTORY")
    add(
        "--document",
        dest="documents",
        metavar="FILE",
        nargs="+",
        type=Path,
        default=[],
        help="renew the tables of each FILE in their places: docs/performance.md docs/performance/tables.md",
    )
    values = parser.parse_args(arguments)
    try:
        names = [case_name(each) for each in values.case]
    except ValueError as error:
        parser.error(str(error))
    if values.all and names:
        parser.error("--all and --case: which? --all takes in every case")
    if values.variant and not names:
        parser.error("--variant NAME ...: of which case? Say --case CASE ..., too; --list shows both")
    names = list(CASES) if values.all or (values.smoke and not names) else names
    if values.base and (values.json or values.plots or values.documents or values.result or values.smoke):
        parser.error("--regress COMMIT prints its result: leave out --json, --plots, --document, --from and --smoke")
    if values.result is not None and names:
        parser.error("--from FILE measures nothing: leave out --all, --case and --smoke")
    if values.result is not None and (values.rounds or values.scale or values.json):
        parser.error("--from FILE measures nothing: leave out --rounds, --scale and --json")
    if not (names or values.list or values.result):
        parser.error("nothing to do: say --all, --case CASE ..., --smoke, --list, or --from FILE")
    if values.result is not None and not values.result.is_file():
        parser.error(f"--from {values.result}: there is no such file; --all --json FILE makes one")
    if values.lines is not None and not (values.lines.is_file() and values.lines.stat().st_size):
        parser.error(f"--lines {values.lines}: there is no such file, or it is empty")
    if values.lines is not None and names and "jvm" not in names:
        parser.error("--lines FILE: only case 11 sends them, add --case jvm")
    for option in ("json", "plots"):
        path: Path | None = getattr(values, option)
        if path is not None and not (path if option == "plots" else path.absolute().parent).is_dir():
            parser.error(f"--{option} {path}: there is no such directory")
    for document in values.documents:
        if not document.is_file():
            parser.error(f"--document {document}: there is no such file; only its tables are generated")
    return Options(
        cases=[name for name in CASES if name in names],
        variants=values.variant,
        rounds=values.rounds or (1 if values.smoke else DEFAULT_ROUNDS),
        scale=values.scale or 1.0,
        smoke=values.smoke,
        lines=values.lines,
        list=values.list,
        json=values.json,
        result=values.result,
        plots=values.plots,
        documents=values.documents,
        ours=values.ours,
        base=values.base,
    )


def case_name(text: str) -> str:
    """Return the name of a case, given by name or number.

    Raises:
        ValueError: there is no such case; the text lists the cases.
    """
    for name, make in CASES.items():
        if text in (name, str(make.number)):
            return name
    known = ", ".join(f"{make.number} {name}" for name, make in CASES.items())
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
