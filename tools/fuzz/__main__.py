"""``python -m tools.fuzz [TARGET ...]``: see its ``--help``."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools.fuzz.child import Attempt
from tools.fuzz.corpus import CORPUS, keep, load
from tools.fuzz.decoders import CompressionTarget, LogTarget, RecordsTarget, SettingsTarget
from tools.fuzz.responses import ResponsesTarget
from tools.fuzz.slab import SlabTarget

TARGETS: Final[dict[str, Callable[[], Any]]] = {
    "slab": SlabTarget,
    "records": RecordsTarget,
    "compression": CompressionTarget,
    "log": LogTarget,
    "responses": ResponsesTarget,
    "settings": SettingsTarget,
}
_DESCRIPTION: Final = """\
Damage on purpose. For each target: the corpus is tried first, then random inputs until the time is over.

  slab         a slab with words overwritten, and operations on it
  records      logs of message formats 0, 1 and 2, and batches in slots
  compression  compressed sections
  log          directories of segments, as senders recover them and `shmaccum dump` prints them
  responses    what brokers answer
  settings     files of settings, and credentials
"""
_EPILOG: Final = """\
An input fails if what reads it crashes, hangs, takes memory without bound, or raises an error that it does not declare.
Inputs that fail are written into the corpus; tests/tools/test_fuzz.py tries all that are there. The same seed makes the
same inputs. Exit status: 0 nothing failed, 1 something did, 2 misused.

examples:
  python -m tools.fuzz                          # a minute, over all targets
  python -m tools.fuzz slab --seconds 600
  python -m tools.fuzz records --seed 7 --corpus /tmp/found
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the targets; return the exit status."""
    args = _parser().parse_args(argv)
    logging.disable(logging.CRITICAL)  # what is wrong with inputs is no news here
    targets = args.targets or list(TARGETS)
    failed = False
    print(f"seed {args.seed}", flush=True)
    for name in targets:
        failed |= _run(name, args.seconds / len(targets), args.seed, args.corpus)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", metavar="TARGET", nargs="*", type=_target, help="all of them, if none is named")
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="in all; %(default)s by default")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the inputs; else random")
    parser.add_argument("--corpus", metavar="DIR", type=Path, default=CORPUS, help="default: tests/fuzz_corpus")
    return parser


def _target(name: str) -> str:
    if name not in TARGETS:
        raise argparse.ArgumentTypeError(f"there is no target {name!r}; there are: {', '.join(TARGETS)}")
    return name


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _run(name: str, seconds: float, seed: int, corpus: Path) -> bool:
    """Run a target; say whether anything failed."""
    deadline = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    failures: Counter[str] = Counter()

    def note(attempt: Attempt) -> None:
        outcomes[attempt.outcome] += 1
        if attempt.wrong:
            what = attempt.wrong.strip().splitlines()[-1]
            failures[what] += 1
            if failures[what] == 1:
                path = keep(corpus, name, attempt.data, target.suffix)
                print(f"{name}: {path} fails:\n{attempt.wrong}", flush=True)

    with TARGETS[name]() as target:
        kept = [data for _, data in load(corpus, name)]
        for attempt in target.try_all(kept):
            note(attempt)
        for attempt in target.attempts(random.Random(f"{name} {seed}")):
            note(attempt)
            if time.monotonic() > deadline:
                break
    print(f"{name}: {outcomes.total()} inputs, {len(kept)} of them from the corpus, {failures.total()} failed")
    for outcome, count in outcomes.most_common(8):
        print(f"  {count:8} {outcome}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
