"""The command; see `tools.moved_by_one_word`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import tools.moved_by_one_word
from tools.benchmark.errors import BenchmarkError
from tools.kafka import KafkaMissingError
from tools.kafka.errors import KafkaToolError
from tools.moved_by_one_word.jobs import JOBS
from tools.moved_by_one_word.report import as_json, as_markdown
from tools.moved_by_one_word.run import run_all

_EPILOG = """\
Prints the table in Markdown. Exit status: 0 if the only differences are those that are known, 1 if there are others,
2 if it could not be run. Spark's own sink is that of the installed pyspark's version, if Maven Central has it.

examples:
  python -m tools.moved_by_one_word
  python -m tools.moved_by_one_word --job threads --job tombstones --json result.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        for job in JOBS.values():
            print(f"{job.name:24} {job.title}")
        return 0
    if options.json is not None:
        try:
            options.json.touch()  # an unwritable file must fail now rather than after all the work
        except OSError as error:
            print(f"python -m tools.moved_by_one_word: --json {options.json}: {error.strerror}", file=sys.stderr)
            return 2
    names = set(options.job or JOBS)
    try:
        versions, comparisons = run_all(
            [job for job in JOBS.values() if job.name in names], lambda line: print(line, file=sys.stderr, flush=True)
        )
    except (BenchmarkError, KafkaMissingError, KafkaToolError) as error:
        print(f"python -m tools.moved_by_one_word: {error}", file=sys.stderr)
        return 2
    print(as_markdown(versions, comparisons))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(versions, comparisons), indent=2) + "\n")
    return 0 if all(each.is_as_known for each in comparisons) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.moved_by_one_word",
        description=tools.moved_by_one_word.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--job", metavar="NAME", action="append", type=_job, help="only this one; can be repeated")
    parser.add_argument("--list", action="store_true", help="name the jobs, and run none")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result there, too")
    return parser


def _job(name: str) -> str:
    if name not in JOBS:
        raise argparse.ArgumentTypeError(f"there is no job {name!r}; there are: {', '.join(JOBS)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
