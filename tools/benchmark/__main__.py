"""``python -m tools.benchmark``: creates the run's directory, runs the cases, prints the report."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.benchmark.cases import CASES
from tools.benchmark.comparisons import THEIRS
from tools.benchmark.document import as_text, renew
from tools.benchmark.environment import Environment
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.machine import commit, machine
from tools.benchmark.measuring import Progress, run_case
from tools.benchmark.options import Options, parse
from tools.benchmark.plots import write_plots
from tools.benchmark.regress import as_text as changes_as_text
from tools.benchmark.regress import regress
from tools.benchmark.results import FORMAT, Result, incomplete, load
from tools.benchmark.settings import Settings, by_kafkas_names


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    try:
        if options.list:
            _list(options)
            sys.stdout.flush()
            return 0
        if options.base:
            found = regress(options.base, options.cases, options.rounds, options.scale)
            print(changes_as_text(found), flush=True)
            return int(any(each.is_worse for each in found))
        result = load(options.result) if options.result is not None else _measure(options, given)
        if options.plots is not None:
            write_plots(result, options.plots)
        for document in options.documents:
            document.write_text(renew(document.read_text(), result))
        print(as_text(result), flush=True)
    except BrokenPipeError:  # the reader has closed its end, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit would raise again
        return 0
    except BenchmarkError as error:
        print(f"python -m tools.benchmark: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupted:
        what = str(interrupted) or "nothing was measured yet"
        print(f"\ninterrupted: {what}; nothing else is left behind", file=sys.stderr)
        return 130
    return 1 if incomplete(result) else 0


def _measure(options: Options, given: list[str]) -> Result:
    """Run the cases; leave no process and no file behind in any case.

    Raises:
        KeyboardInterrupt: before it was done; says what was saved.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress()
    result: dict[str, Any] = {
        "format": FORMAT,
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "took_s": 0.0,
        "command": ["python", "-m", "tools.benchmark", *given],
        "scale": options.scale,
        "smoke": options.smoke,
        "rounds": options.rounds,
        "machine": machine(),
        "settings": by_kafkas_names(Settings()),
        "cases": [],
    }
    try:
        with tempfile.TemporaryDirectory(prefix="shmaccum-bench-", ignore_cleanup_errors=True) as directory:
            environment = Environment(Path(directory), options.scale, smoke=options.smoke, lines=options.lines)
            try:
                _run(options, environment, result, progress)
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                environment.close()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_saved(options, result)) from None
    return result


def _run(options: Options, environment: Environment, result: dict[str, Any], progress: Progress) -> None:
    cases = {name: CASES[name].variants(environment) for name in options.cases}
    known = {variant.name for variants in cases.values() for variant in variants}
    if unknown := set(options.variants) - known:
        raise BenchmarkError(f"no variant {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    for place, (name, variants) in enumerate(cases.items()):
        wanted = [each for each in variants if not options.variants or each.name in options.variants]
        if options.ours:
            ours = ([who for who in each.contestants if who not in THEIRS] for each in wanted)
            wanted = [replace(each, contestants=kept) for each, kept in zip(wanted, ours, strict=True) if kept]
        for found in run_case(CASES[name], wanted, options.rounds, progress, warm_up=not options.smoke):
            result["cases"][place:] = [found]
            result["took_s"] = round(progress.seconds, 1)
            if options.json is not None:
                _write(options.json, result)
        environment.of_case.close()


def _write(file: Path, result: Result) -> None:
    """Replace the file as a whole, so that an interrupted run leaves what it had measured."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(result, separators=(",", ":")) + "\n")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _saved(options: Options, result: Result) -> str:
    """Return a text on what an interrupted run has saved."""
    if options.json is None:
        return "without --json nothing was saved"
    if not result["cases"]:
        return f"nothing was measured yet, {options.json} is as it was"
    return f"{options.json} has what was measured, which --from {options.json} shows"


def _list(options: Options) -> None:
    """Print the cases with their variants, as they would run."""
    environment = Environment(Path(), options.scale, smoke=options.smoke, lines=options.lines)
    for case in CASES.values():
        print(f"{case.number}  {case.name}: {case.title}")
        for variant in case.variants(environment):
            print(f"     {variant.name}: {variant.title}: {'; '.join(variant.contestants)}")


if __name__ == "__main__":
    sys.exit(main())
