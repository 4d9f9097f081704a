"""The command: a directory for the run, the cases, the report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tools.benchmark.cases import CASES
from tools.benchmark.document import renew
from tools.benchmark.machine import machine
from tools.benchmark.measuring import Progress, run_case
from tools.benchmark.options import Options, parse
from tools.benchmark.plots import write_plots
from tools.benchmark.report import as_text
from tools.benchmark.results import FORMAT, Result, incomplete
from tools.benchmark.settings import Settings, by_kafkas_names
from tools.benchmark.workshop import Workshop


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    if options.list:
        _list(options)
        return 0
    if options.result is not None:
        result: Result = json.loads(options.result.read_text())
        if result.get("format") != FORMAT:
            print(f"{options.result} is not a result of this version of tools/bench.py --json", file=sys.stderr)
            return 2
    else:
        try:
            result = _measure(options, given)
        except KeyboardInterrupt:
            print("\ninterrupted: nothing is left behind but what --json has so far", file=sys.stderr)
            return 130
    print(as_text(result))
    if options.plots is not None:
        write_plots(result, options.plots)
    if options.document is not None:
        options.document.write_text(renew(options.document.read_text(), result))
    return 1 if incomplete(result) else 0


def _measure(options: Options, given: list[str]) -> Result:
    """Run the cases; whatever happens, no process and no file is left behind."""
    signal.signal(signal.SIGTERM, _interrupt)
    result: dict[str, Any] = {
        "format": FORMAT,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["tools/bench.py", *given],
        "scale": options.scale,
        "smoke": options.smoke,
        "rounds": options.rounds,
        "machine": machine(),
        "settings": by_kafkas_names(Settings()),
        "cases": [],
    }
    directory = Path(tempfile.mkdtemp(prefix="shmaccum-bench-"))
    try:
        workshop = Workshop(directory, options.scale, smoke=options.smoke)
        try:
            progress = Progress()
            for name in options.cases:
                place = len(result["cases"])
                run_case(CASES[name](), workshop, options.rounds, progress, partial(_keep, options, result, place))
        finally:
            workshop.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _keep(options: Options, result: dict[str, Any], place: int, case: Result) -> None:
    """Note a case's result so far, also in the file."""
    result["cases"][place:] = [case]
    if options.json is not None:
        unfinished = options.json.with_name(f"{options.json.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(result, separators=(",", ":")) + "\n")
        unfinished.replace(options.json)


def _list(options: Options) -> None:
    """Print the cases with their variants, as they would run."""
    workshop = Workshop(Path(), options.scale, smoke=options.smoke)
    for name, make in CASES.items():
        print(f"{make.number}  {name}: {make.title}")
        for variant in make().variants(workshop):
            print(f"     {variant.title}: {'; '.join(variant.contestants)}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
