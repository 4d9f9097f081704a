"""The command-line options."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tools.stress

TOPICS: Final = ("stress-a", "stress-b")
SLOT_SIZE: Final = 4096
"""Small, so that there are many batches to open, seal, send and free."""
LARGE_SLOT_SIZE: Final = 16 * SLOT_SIZE
"""The same with compression."""
BATCH_SIZES: Final = (0, SLOT_SIZE, SLOT_SIZE, 4 * SLOT_SIZE)
"""``batch.size``: each producer has one of these."""
SLOTS: Final = 64
"""``buffer.memory`` in slots: so few that producers wait for memory."""
SENDER_IDLE_MS: Final = 10_000
"""Longer than the tool checks the slab at rest, after which it stops the sender."""

_EPILOG: Final = """\
Exit status: 0 if all of this held, 1 if not, 2 if it could not be run. Where it did not hold, the log, the accounts
and the messages of all processes are kept, and the report says where. All rates are per second, for all processes.

examples:
  python -m tools.stress --producers 8 --kill-producers 5 --kill-sender 0.5 --seconds 120
  python -m tools.stress --producers 8 --terminate 1 --pid-namespaces 3 --transport kafka
  python -m tools.stress --soak --json soak.json
  python -m tools.stress --pyspark --seconds 30
  python -m tools.stress --exactly-once --runs 1000    (its own options: --exactly-once --help)
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options. Rates are events per second, sizes bytes; see `parse` for each."""

    producers: int
    threads: int
    seconds: float
    kill_producers: float
    kill_sender: float
    stop: float
    terminate: float
    pid_namespaces: int
    partitions: int
    record_size: int
    columns: float
    rate: float
    transport: str
    compression: str
    seed: int
    max_stall: float
    soak: bool
    pyspark: bool
    json: Path | None


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.stress",
        description=tools.stress.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    count = _number("a whole number above 0", 1, kind=int)
    positive = _number("a number above 0", 0, above=True)
    rate = _number("a number, 0 or above", 0)
    add("--producers", metavar="N", type=count, default=4, help="producer processes at a time [%(default)s]")
    add("--threads", metavar="N", type=count, default=2, help="threads in each that append [%(default)s]")
    add("--seconds", metavar="S", type=positive, help="how long to append and kill [20; soak: 600]")
    add("--kill-producers", metavar="RATE", type=rate, help="producers to kill [2; PySpark: 1]")
    add("--kill-sender", metavar="RATE", type=rate, help="senders to kill [0.5; soak: 0.02]")
    add("--stop", metavar="RATE", type=rate, default=0.5, help="processes to stop for up to a second [%(default)s]")
    add(
        "--terminate",
        metavar="RATE",
        type=rate,
        default=0.0,
        help="processes to end by SIGTERM: producers flush and close, the sender leaves [%(default)s]",
    )
    add(
        "--pid-namespaces",
        metavar="N",
        type=_number("a whole number, 0 or above", 0, kind=int),
        default=0,
        help="producers that each live in a PID namespace of their own, as in a container, together with the senders "
        "that they start: these die with them; needs root [%(default)s]",
    )
    add("--partitions", metavar="N", type=count, default=4, help="partitions of each of the two topics [%(default)s]")
    add("--record-size", metavar="BYTES", type=count, default=200, help="mean size of a record [%(default)s]")
    add(
        "--columns",
        metavar="SHARE",
        type=_number("a number between 0 and 1", 0, most=1),
        default=0.3,
        help="share of calls to send_batch [%(default)s]",
    )
    add("--rate", metavar="RATE", type=rate, help="records a thread appends at most [no limit; soak: 300]")
    add(
        "--transport",
        choices=("log", "kafka"),
        default="log",
        help="a log in Kafka's format, or a broker of its own [%(default)s]",
    )
    add(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="of batches that are so large then that threads of the sender compress them [%(default)s]",
    )
    add("--seed", metavar="X", type=int, help="of the plan and the load [a new one, which the report shows]")
    add("--max-stall", metavar="S", type=positive, default=15.0, help="longest time without progress [%(default)s]")
    add(
        "--soak",
        action="store_true",
        help="ten minutes at a steady rate, with one sender and two producers that live long; memory, descriptors, "
        "/dev/shm and throughput must stay the same (tools/stress/soak.py)",
    )
    add(
        "--pyspark",
        action="store_true",
        help="kill Spark's own Python workers, with --kill-producers, in the middle of a job that writes by the data "
        "source: the job's output is complete (tools/stress/spark.py)",
    )
    add("--json", metavar="FILE", type=Path, help="write the report to FILE")
    add("--spark", nargs="?", help=argparse.SUPPRESS)
    values = vars(parser.parse_args(arguments))
    if values.pop("spark") is not None:
        parser.error("--spark needs --exactly-once")
    soak = values["soak"]
    if soak and values["pyspark"]:
        parser.error("--soak and --pyspark are two different runs")
    if values["pid_namespaces"] and (soak or values["pyspark"]):
        parser.error("--pid-namespaces is for neither --soak nor --pyspark")
    if values["pid_namespaces"] > values["producers"]:
        parser.error(f"--pid-namespaces {values['pid_namespaces']}: there are only {values['producers']} producers")
    if values["pid_namespaces"] and os.geteuid() != 0:
        parser.error("--pid-namespaces needs root")
    defaults = {
        "seconds": 600.0 if soak else 20.0,
        "kill_producers": 1.0 if values["pyspark"] else 2.0,
        "kill_sender": 0.02 if soak else 0.5,
        "rate": 300.0 if soak else 0.0,
        "seed": secrets.randbelow(1 << 32),
    }
    return Options(**values | {name: default for name, default in defaults.items() if values[name] is None})


def _number(what: str, least: float, *, above: bool = False, most: float = 1e9, kind: type[float] = float) -> Any:
    """Return argparse's check of a number, at least ``least``, or above it."""

    def check(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not (least < number if above else least <= number) or number > most or number != kind(number):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return kind(number)

    return check
