"""``python -m tools.stress``: a directory for the run, the run, the report."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tools.stress.options import Options, parse
from tools.stress.outcome import Outcome
from tools.stress.report import as_json, as_text
from tools.stress.run import Run
from tools.stress.target import target


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _interrupt)
    if "--exactly-once" in given:  # a run of another kind, with options of its own
        from tools.stress import exactly_once

        try:
            return exactly_once.main([each for each in given if each != "--exactly-once"])
        except KeyboardInterrupt:
            print("\ninterrupted: nothing was compared, and nothing is left behind", file=sys.stderr)
            return 130
    options = parse(given)
    if options.json is not None:
        options.json.touch()  # an unwritable file must fail now rather than after all the work
    directory = Path(tempfile.mkdtemp(prefix="shmaccum-stress-"))
    keep = True
    try:
        outcome = _run(options, directory)
        keep = bool(outcome.problems)
    except KeyboardInterrupt:
        keep = False
        print("\ninterrupted: nothing was compared, and nothing is left behind", file=sys.stderr)
        return 130
    finally:
        if not keep:
            shutil.rmtree(directory)
    print(as_text(options, outcome))
    if keep:
        print(
            f"  The log, the accounts and all messages are in {directory}; --seed {options.seed} makes the same plan."
        )
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(options, outcome), indent=2) + "\n")
    return 1 if outcome.problems else 0


def _run(options: Options, directory: Path) -> Outcome:
    with target(options, directory) as to:
        if options.pyspark:
            from tools.stress.spark import SparkRun

            return SparkRun(options, directory, to).run()
        return Run(options, directory, to).run()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
