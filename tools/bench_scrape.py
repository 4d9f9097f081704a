"""Measures what a scrape of a slab costs, and what it costs the sender that serves it from a thread.

``--partitions 4096`` is a slab whose partitions all have an open batch. ``--sender`` runs `shmaccum sender
--metrics-listen` into a log twice, without scrapes and with one every second.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shmaccum import Producer
from shmaccum.observe.prometheus import SlabCollector, exposition

_SCRAPES = 50
_LARGE = {"buffer.memory": 4096 * 4096, "batch.size": 4096, "shmaccum.max.partitions": 4096}


def scrape_times(partitions: int) -> Iterator[str]:
    """Yield a line for each form of the text: how long it takes to make."""
    name = f"bench-scrape-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "num.partitions": partitions, "shmaccum.name": name}
        with Producer(settings | _LARGE | {"linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as producer:
            for partition in range(partitions):
                producer.send("t", b"x" * 100, partition=partition)
            for by_partition in (False, True):
                collector = SlabCollector([name], partitions=by_partition)
                for accept in ("", "application/openmetrics-text; version=1.0.0"):
                    size = len(exposition(collector, accept).content)
                    least, median = _times(lambda c=collector, a=accept: exposition(c, a))  # type: ignore[misc]
                    series = "by partition" if by_partition else "by topic"
                    form = f"{series:12}  {'OpenMetrics' if accept else 'text':11}"
                    took = f"median {median:6.1f} ms  least {least:6.1f} ms"
                    yield f"{partitions} partitions  {form}  {size:9,} bytes  {took}"


def _times(run: Callable[[], object]) -> tuple[float, float]:
    """Return the least and the median processor time, in milliseconds; other programs' work does not count."""
    times = []
    for _ in range(_SCRAPES):
        began = time.thread_time()
        run()
        times.append((time.thread_time() - began) * 1000)
    return min(times), statistics.median(times)


def sender_costs(seconds: float) -> Iterator[str]:
    """Yield the sender's processor time for a million records, and the rate, without and with scrapes."""
    for scrapes in (False, True, False, True):
        with tempfile.TemporaryDirectory() as directory:
            settings = {"transport": "log", "log.dir": directory, "shmaccum.name": f"bench-scrape-{os.getpid()}"}
            with _sender(settings) as (process, url), Producer(settings) as producer:
                producer.send("t", b"x").get(timeout=30)
                records, before, began = 0, _processor_s(process.pid), time.monotonic()
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
                took, used = time.monotonic() - began, _processor_s(process.pid) - before
        what = "a scrape a second" if scrapes else "no scrapes       "
        yield f"{what}  {records / took:9,.0f} records/s  sender {used / records * 1e6:6.2f} s of processor a million"


@contextmanager
def _sender(settings: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
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
            yield process, re.findall(r"http://\S+", said)[0]
        finally:
            process.terminate()


def _processor_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_scrape", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--partitions", type=int, default=4096)
    parser.add_argument("--sender", action="store_true", help="what scrapes cost the sender, instead")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of its four runs")
    args = parser.parse_args(arguments)
    for line in sender_costs(args.seconds) if args.sender else scrape_times(args.partitions):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
