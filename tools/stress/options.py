"""The command-line options."""

from __future__ import annotations

import argparse
import os
import secrets
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tools.stress
from tools.support.arguments import add_numbers, command_line, set_numbers

Options = argparse.Namespace
"""In them, rates are events per second, and sizes bytes."""
TOPICS: Final = ("stress-a", "stress-b")
SLOT_SIZE: Final = 4096
"""Small, so that there are many batches to open, seal, send and free; 16 times that with compression."""
BATCH_SIZES: Final = (0, SLOT_SIZE, SLOT_SIZE, 4 * SLOT_SIZE)
"""``batch.size``: each producer has one of these."""

with Path(__file__).with_name("options.toml").open("rb") as _file:
    _NUMBERS: Final = tomllib.load(_file)
_EPILOG: Final = """\
Exit status: 0 if all of this held, 1 if not, 2 if it could not be run. Where it did not hold, the log, the accounts
and the messages of all processes are kept, and the report says where. All rates are per second, for all processes.

--soak is ten minutes at a steady rate, with one sender and two producers that live long; memory, descriptors, /dev/shm
and throughput must stay the same (tools/stress/soak.py).

examples:
  python -m tools.stress --producers 8 --kill-producers 5 --kill-sender 0.5 --seconds 120
  python -m tools.stress --producers 8 --terminate 1 --pid-namespaces 3 --transport kafka
  python -m tools.stress --soak --json soak.json
  python -m tools.stress --exactly-once --runs 1000    (its own options: --exactly-once --help)
"""


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add what each kind of run has."""
    of = "of the plan and the load [a new one, which the report shows]"
    parser.add_argument("--seed", metavar="X", type=int, default=secrets.randbelow(1 << 32), help=of)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report to FILE")


def parse(arguments: Sequence[str]) -> Options:
    parser = command_line("stress", tools.stress.__doc__, _EPILOG)
    add_numbers(parser, _NUMBERS)
    add = parser.add_argument
    to = "a log in Kafka's format, or a broker of its own [%(default)s]"
    add("--transport", choices=("log", "kafka"), default="log", help=to)
    compressed = "of batches that are so large then that threads of the sender compress them [%(default)s]"
    add("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help=compressed)
    add_run(parser)
    add("--soak", action="store_true", help="see below")
    add("--spark", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    set_numbers(parser, options, _NUMBERS, "--soak" if options.soak else "runs without --soak")
    if options.spark is not None:
        parser.error("--spark needs --exactly-once")
    if options.pid_namespaces > options.producers:
        parser.error(f"--pid-namespaces {options.pid_namespaces}: there are only {options.producers} producers")
    if options.pid_namespaces and os.geteuid() != 0:
        parser.error("--pid-namespaces needs root")
    return options
