"""``python -m tools.stress``: a directory for the run, the run, the report."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tools.stress.options import Options, parse
from tools.stress.run import Run, as_json, as_text, target


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if "--exactly-once" in given:  # a run of another kind, with options of its own
            from tools.stress import exactly_once

            return exactly_once.main([each for each in given if each != "--exactly-once"])
        return _run(parse(given))
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was compared, and nothing is left behind", file=sys.stderr)
        return 130


def _run(options: Options) -> int:
    if options.json is not None:
        options.json.touch()  # an unwritable file must fail now rather than after all the work
    directory = Path(tempfile.mkdtemp(prefix="shmaccum-stress-"))
    try:
        with target(options, directory) as to:
            outcome = Run(options, directory, *to).run()
    except KeyboardInterrupt:
        shutil.rmtree(directory)
        raise
    print(as_text(options, outcome))
    if outcome.problems:
        print(
            f"  The log, the accounts and all messages are in {directory}; --seed {options.seed} makes the same plan."
        )
    else:
        shutil.rmtree(directory)
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(options, outcome), indent=2) + "\n")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
