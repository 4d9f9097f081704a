"""What a scrape of a slab costs, or what it costs the sender that serves it from a thread.

The slab's partitions all have an open batch. ``--sender`` runs `shmaccum sender --metrics-listen` into a log, without
scrapes and with one every second.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from shmaccum import Producer
from shmaccum.observe.prometheus import SlabCollector, exposition
from tools.bench.harness import Figures, Row, compared, print_table, spread, take_turns
from tools.benchmark.cpu import clock

_SCRAPES: Final = 50
_LARGE: Final = {"buffer.memory": 4096 * 4096, "shmaccum.slot.size": 4096, "shmaccum.max.partitions": 4096}


def scrape_times(partitions: int) -> Iterator[Row]:
    """Yield the size of each form of the text, and the milliseconds that it takes to make."""
    name = f"bench-scrape-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "num.partitions": partitions, "shmaccum.name": name}
        with Producer(settings | _LARGE | {"linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as producer:
            for partition in range(partitions):
                producer.send("t", b"x" * 100, partition=partition)
            for series, by_partition in (("by topic", False), ("by partition", True)):
                collector = SlabCollector([name], partitions=by_partition)
                for form, accept in (("text", ""), ("OpenMetrics", "application/openmetrics-text; version=1.0.0")):
                    size = len(exposition(collector, accept).content)
                    times = [_scrape_ms(collector, accept) for _ in range(_SCRAPES)]
                    yield f"{series}, {form}", {"bytes": size, **spread(times)}


def _scrape_ms(collector: SlabCollector, accept: str) -> float:
    """Return this thread's processor time, so that other programs' work does not count."""
    began = time.thread_time()
    exposition(collector, accept)
    return (time.thread_time() - began) * 1000


def sender_cost(seconds: float, *, scrapes: bool) -> Figures:
    """Return the rate, and the sender's processor time for a million records, with or without scrapes."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "shmaccum.name": f"bench-scrape-{os.getpid()}"}
        with _sender(settings) as (pid, url), Producer(settings) as producer:
            producer.send("t", b"x").get(timeout=30)
            records, before, began = 0, clock(pid), time.monotonic()
            next_scrape = began
            while time.monotonic() < began + seconds:
                for _ in range(500):
                    producer.send("t", b"x" * 100)
                records += 500
                if scrapes and time.monotonic() >= next_scrape:
                    next_scrape += 1
                    with urllib.request.urlopen(url, timeout=30) as answer:
                        answer.read()
            producer.flush()
            took, used = time.monotonic() - began, clock(pid) - before
    return {"records/s": records / took, "CPU s/million": used / records * 1e6}


@contextmanager
def _sender(settings: dict[str, str]) -> Iterator[tuple[int, str]]:
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    command = [sys.executable, "-m", "shmaccum", "sender", *options, "--metrics-listen", ":0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "serving slab" not in said:
                line = process.stderr.readline()
                if not line:
                    raise ValueError(f"the sender does not start: {said}")
                said += line
            yield process.pid, re.findall(r"http://\S+", said)[0]
        finally:
            process.terminate()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, default=4096)
    parser.add_argument("--sender", action="store_true", help="what scrapes cost the sender, instead")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of its turns")
    parser.add_argument("--rounds", type=int, default=2, help="of its turns")


def run(options: argparse.Namespace) -> None:
    if options.sender:
        contestants = {
            "a scrape a second": partial(sender_cost, options.seconds, scrapes=True),
            "no scrapes": partial(sender_cost, options.seconds, scrapes=False),
        }
        print_table("the sender that serves", compared(take_turns(contestants, options.rounds)))
    else:
        print_table(f"ms, {options.partitions} partitions", scrape_times(options.partitions))
