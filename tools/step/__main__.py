"""``python -m tools.step``: tests all crash points, or some, and reports."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import tools.step
from tools.step.operations import OPERATIONS
from tools.step.report import as_text, record
from tools.step.run import Harness, Progress, Way
from tools.support.arguments import command_line

_EPILOG: Final = """\
Exit status: 0 if every point was survived, 1 if not. `recovery` is the longest time, in all points, from the victim's
death until the survivor had done everything; the more points at a time, the longer.

examples:
  python -m tools.step
  python -m tools.step --sample 10 --seed 7
  python -m tools.step --operation append-open --operation seal --jobs 2
  python -m tools.step --stop
  python -m tools.step --pairs --operation append-open
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parse(arguments)
    way = options.way
    names = options.operation or (name for name, of in OPERATIONS.items() if of.pairs or way is not Way.PAIRS)
    chosen = [OPERATIONS[name] for name in names]
    if options.sample and options.seed is None:
        options.seed = secrets.randbelow(1 << 32)
    started = time.monotonic()
    # Both signals, even if a shell has set one to be ignored.
    interrupts = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in interrupts}
    try:
        with Harness(options.jobs) as harness:
            progress = _progress(sys.stderr.isatty())
            findings = harness.run(chosen, progress, options.sample, options.seed or 0, way)
    except KeyboardInterrupt:
        print("\ninterrupted: nothing is left behind", file=sys.stderr)
        return 130
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    print(as_text(findings, way))
    print(f"{time.monotonic() - started:.0f} s" + (f", --seed {options.seed}" if options.sample else ""))
    if options.record:
        record(findings, way)
    return 1 if any(of.failed for of in findings) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("step", tools.step.__doc__, _EPILOG)
    add = parser.add_argument
    which = f"only this one; may be given more than once: {', '.join(OPERATIONS)}"
    add("--operation", action="append", choices=OPERATIONS, metavar="NAME", help=which)
    add("--sample", type=_count, default=0, metavar="N", help="only N steps of each operation [all of them]")
    ways = parser.add_mutually_exclusive_group()
    stop = "stop each operation at its stores while others work, then let it go on, instead of killing it"
    ways.add_argument("--stop", dest="way", action="store_const", const=Way.STOP, default=Way.KILL, help=stop)
    pairs = "kill or stop it there, and kill a second process with the same operation at each of its own stores"
    ways.add_argument("--pairs", dest="way", action="store_const", const=Way.PAIRS, help=pairs)
    add("--seed", type=int, metavar="X", help="of the sample [a new one, which the report shows]")
    jobs = "points at a time; most of them wait for a lock takeover [%(default)s]"
    add("--jobs", type=_count, default=4 * len(os.sched_getaffinity(0)), metavar="J", help=jobs)
    noted = "note the numbers for docs/crash-points.md, which `make docs` writes then"
    add("--record", action="store_true", help=noted)
    options = parser.parse_args(arguments)
    if options.record and options.sample:
        parser.error("--record is for all points: leave --sample out")
    if options.seed is not None and not options.sample:
        parser.error("--seed is for --sample: without it, all steps are taken")
    return options


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _progress(on_terminal: bool) -> Progress:
    """Return a function that shows how many points are done: in place on a terminal, periodically elsewhere."""
    shown_s = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if done == total or now_s - shown_s >= (0.2 if on_terminal else 10):
            shown_s = now_s
            print(f"{done:,} of {total:,} points", end="\r" if on_terminal else "\n", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
