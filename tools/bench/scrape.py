"""What a scrape of a slab costs, whose partitions all have an open batch."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Final

from shmaccum import Producer
from shmaccum.observe.prometheus import SlabCollector, exposition
from tools.bench.harness import Row, print_table, spread

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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, default=4096)


def run(options: argparse.Namespace) -> None:
    print_table(f"ms, {options.partitions} partitions", scrape_times(options.partitions))
