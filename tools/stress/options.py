"""The command-line options."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tools.stress
from tools.support.arguments import command_line

Options = argparse.Namespace
"""In them, rates are events per second, and sizes bytes."""
TOPICS: Final = ("stress-a", "stress-b")
SLOT_SIZE: Final = 4096
"""Small, so that there are many batches to open, seal, send and free; 16 times that with compression."""
BATCH_SIZES: Final = (0, SLOT_SIZE, SLOT_SIZE, 4 * SLOT_SIZE)
"""``batch.size``: each producer has one of these."""

_BOUNDS: Final = (
    dict.fromkeys(("producers", "threads", "partitions", "record_size"), (1, 1e9))
    | dict.fromkeys(("kill_producers", "kill_sender", "stop", "terminate", "rate", "pid_namespaces"), (0, 1e9))
    | {"seconds": (0.1, 1e9), "max_stall": (0.1, 1e9), "columns": (0, 1)}
)
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


def parse(arguments: Sequence[str]) -> Options:
    parser = command_line("stress", tools.stress.__doc__, _EPILOG)
    add = parser.add_argument
    add("--producers", metavar="N", type=int, default=4, help="producer processes at a time [%(default)s]")
    add("--threads", metavar="N", type=int, default=2, help="threads in each that append [%(default)s]")
    add("--seconds", metavar="S", type=float, help="how long to append and kill [20; soak: 600]")
    add("--kill-producers", metavar="RATE", type=float, default=2.0, help="producers to kill [%(default)s]")
    add("--kill-sender", metavar="RATE", type=float, help="senders to kill [0.5; soak: 0.02]")
    add("--stop", metavar="RATE", type=float, default=0.5, help="processes to stop for up to a second [%(default)s]")
    terminated = "processes to end by SIGTERM: producers flush and close, the sender leaves [%(default)s]"
    add("--terminate", metavar="RATE", type=float, default=0.0, help=terminated)
    in_namespaces = "producers that each live in a PID namespace of their own, as in a container, together with the "
    in_namespaces += "senders that they start: these die with them; needs root [%(default)s]"
    add("--pid-namespaces", metavar="N", type=int, default=0, help=in_namespaces)
    add("--partitions", metavar="N", type=int, default=4, help="partitions of each of the two topics [%(default)s]")
    add("--record-size", metavar="BYTES", type=int, default=200, help="mean size of a record [%(default)s]")
    add("--columns", metavar="SHARE", type=float, default=0.3, help="share of calls to send_batch [%(default)s]")
    add("--rate", metavar="RATE", type=float, help="records a thread appends at most [no limit; soak: 300]")
    to = "a log in Kafka's format, or a broker of its own [%(default)s]"
    add("--transport", choices=("log", "kafka"), default="log", help=to)
    compressed = "of batches that are so large then that threads of the sender compress them [%(default)s]"
    add("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help=compressed)
    add("--seed", metavar="X", type=int, help="of the plan and the load [a new one, which the report shows]")
    add("--max-stall", metavar="S", type=float, default=15.0, help="longest time without progress [%(default)s]")
    add("--soak", action="store_true", help="see below")
    add("--json", metavar="FILE", type=Path, help="write the report to FILE")
    add("--spark", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, (least, most) in _BOUNDS.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            parser.error(f"--{name.replace('_', '-')} {value} is not between {least:g} and {most:g}")
    soak = options.soak
    if options.spark is not None:
        parser.error("--spark needs --exactly-once")
    if options.pid_namespaces and soak:
        parser.error("--pid-namespaces is not for --soak")
    if options.pid_namespaces > options.producers:
        parser.error(f"--pid-namespaces {options.pid_namespaces}: there are only {options.producers} producers")
    if options.pid_namespaces and os.geteuid() != 0:
        parser.error("--pid-namespaces needs root")
    for name, default in {
        "seconds": 600.0 if soak else 20.0,
        "kill_sender": 0.02 if soak else 0.5,
        "rate": 300.0 if soak else 0.0,
        "seed": secrets.randbelow(1 << 32),
    }.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options
