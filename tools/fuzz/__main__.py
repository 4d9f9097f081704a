"""``python -m tools.fuzz [TARGET ...]``: see its ``--help``."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools import sanitized
from tools.fuzz.child import Attempt
from tools.fuzz.columns import ColumnsTarget
from tools.fuzz.decoders import LogTarget, RecordsTarget, SettingsTarget
from tools.fuzz.responses import ResponsesTarget
from tools.fuzz.slab import SlabTarget, SweepTarget, Table
from tools.support.arguments import command_line

TARGETS: Final[dict[str, Callable[[], Any]]] = {
    "slab": SlabTarget,
    "sweep": SweepTarget,
    "records": RecordsTarget,
    "columns": ColumnsTarget,
    "log": LogTarget,
    "responses": ResponsesTarget,
    "settings": SettingsTarget,
}
_DESCRIPTION: Final = """\
Damage on purpose. For each target: the corpus is tried first, then random inputs until the time is over.

  slab       a slab with words overwritten, and operations on it
  sweep      every word of a slab's tables, with each of the values at which arithmetic goes wrong. Named alone, it
             prints a table of the results; without --seconds it tries all of them, which takes a while
  records    logs of message formats 0, 1 and 2, compressed or not, and batches in slots
  columns    Arrow batches whose buffers do not match their description
  log        directories of segments, as senders recover them and `shmaccum dump` prints them
  responses  what brokers answer
  settings   files of settings, and credentials
"""
CORPUS: Final = Path(__file__).resolve().parents[2] / "tests" / "fuzz_corpus"
"""Inputs that once failed, and some that reach far: a directory for each target, a file for each input."""
_SECONDS: Final = 60.0
_SHARE: Final = 100
"""Inputs of the sweep for which one process makes a slab."""
_EPILOG: Final = """\
An input fails if what reads it crashes, hangs, takes memory without bound, or raises an error that it does not declare.
Inputs that fail are written into the corpus; tests/tools/test_fuzz.py tries all that are there. The same seed makes the
same inputs. Exit status: 0 nothing failed, 1 something did, 2 misused.

examples:
  python -m tools.fuzz                          # a minute, over all targets
  python -m tools.fuzz slab --seconds 600
  python -m tools.fuzz sweep                    # all of it
  python -m tools.fuzz sweep --seconds 600      # a sample of it
  python -m tools.fuzz records --seed 7 --corpus /tmp/found
"""


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = command_line("fuzz", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("targets", metavar="TARGET", nargs="*", help="all of them, if none is named")
    add("--seconds", type=float, help=f"in all; {_SECONDS:.0f} by default")
    add("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the inputs; else random")
    add("--corpus", metavar="DIR", type=Path, default=CORPUS, help="default: tests/fuzz_corpus")
    add("--sanitize", action="store_true", help="over a core with AddressSanitizer and UBSan")
    args = parser.parse_args(argv)
    for name in set(args.targets) - TARGETS.keys():
        parser.error(f"there is no target {name!r}; there are: {', '.join(TARGETS)}")
    if args.seconds is not None and not 0 < args.seconds < 1e9:
        parser.error(f"--seconds: {args.seconds} is not a number of seconds above 0")
    if args.sanitize:
        return sanitized.run(["-m", "tools.fuzz", *(each for each in argv if each != "--sanitize")])
    logging.disable(logging.CRITICAL)  # what is wrong with inputs is no news here
    targets = args.targets or list(TARGETS)
    print(f"seed {args.seed}", flush=True)
    if targets == ["sweep"]:
        return 1 if _sweep(args) else 0
    seconds = _SECONDS if args.seconds is None else args.seconds
    failed = [_run(name, seconds / len(targets), args.seed, args.corpus) for name in targets]
    return 1 if any(failed) else 0


def load(corpus: Path, target: str) -> list[tuple[Path, bytes]]:
    return [(path, path.read_bytes()) for path in sorted((corpus / target).glob("*.*"))]


def _run(name: str, seconds: float, seed: int, corpus: Path) -> bool:
    deadline = time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    with TARGETS[name]() as target:
        failures = _Failures(corpus, name, target.suffix)
        kept = [data for _, data in load(corpus, name)]
        for attempt in itertools.chain(target.try_all(kept), target.attempts(random.Random(f"{name} {seed}"))):
            outcomes[attempt.outcome] += 1
            failures.note(attempt)
            if outcomes.total() > len(kept) and time.monotonic() > deadline:
                break
    print(f"{name}: {outcomes.total()} inputs, {len(kept)} of them from the corpus, {failures.count} failed")
    for outcome, count in outcomes.most_common(8):
        print(f"  {count:8} {outcome}")
    return failures.count > 0


def _sweep(args: argparse.Namespace) -> bool:
    """Overwrite every word by every value, or as many as there is time for; return whether anything failed."""
    deadline = float("inf") if args.seconds is None else time.monotonic() + args.seconds
    tried = 0
    with SweepTarget() as target:
        plans, table = list(target.plans()), Table()
        failures = _Failures(args.corpus, "sweep", target.suffix)
    if args.seconds is not None:
        random.Random(f"sweep {args.seed}").shuffle(plans)
    shares = [plans[start : start + _SHARE] for start in range(0, len(plans), _SHARE)]
    with ProcessPoolExecutor(3 * (os.cpu_count() or 1)) as pool:  # they mostly wait
        for attempt in itertools.chain.from_iterable(pool.map(partial(_try_share, deadline), shares)):
            tried += 1
            table.note(attempt)
            failures.note(attempt)
    print("\n".join(table.lines()))
    print(f"sweep: {tried:,} of {len(plans):,} inputs, {failures.count} failed")
    return failures.count > 0


def _try_share(deadline: float, plans: Sequence[bytes]) -> list[Attempt]:
    if time.monotonic() > deadline:
        return []
    with SweepTarget() as target:
        return list(target.try_all(itertools.takewhile(lambda _: time.monotonic() < deadline, plans)))


class _Failures:
    """Counts what failed; keeps, and prints, the first input that fails in a way."""

    def __init__(self, corpus: Path, target: str, suffix: str) -> None:
        self.count = 0
        self._corpus, self._target, self._suffix = corpus, target, suffix
        self._known: set[str] = set()

    def note(self, attempt: Attempt) -> None:
        if not attempt.wrong:
            return
        self.count += 1
        what = attempt.wrong.strip().splitlines()[-1]
        if what not in self._known:
            self._known.add(what)
            path = self._corpus / self._target / f"{hashlib.sha256(attempt.data).hexdigest()[:16]}{self._suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(attempt.data)
            print(f"{self._target}: {path} fails:\n{attempt.wrong}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
