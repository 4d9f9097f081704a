"""Programs that wait for each call, or poll after it, against confluent-kafka.

Two programs, of one process, with records of 100 bytes:

* *one at a time*: a record is sent, without lingering, and waited for; then the next one. By `shmaccum.Producer` and by
  confluent-kafka, both idempotent: 3,000 records.
* *poll after each*: ``produce`` with a callback, then ``poll(0)``, by confluent-kafka and by
  `shmaccum.compat.confluent`, each with its own defaults: 300,000 records.

Processor time is that of the process and of our sender, from the first record to the last acknowledgement. Each turn
has new processes, and begins after some records that do not count.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final

import confluent_kafka

import shmaccum
from shmaccum.compat import confluent
from tools.bench.harness import Figures, Row, apart, broker, compared, print_table, take_turns
from tools.benchmark.cpu import clock
from tools.support.processes import descendants

_TOPIC: Final = "calls"
_VALUE: Final = bytes(100)
_ALONE: Final = 3_000
_POLLED: Final = 300_000
_WARMUP: Final = 500

Program = Callable[[str, int], Generator[float]]
"""Sends some records to a server, after some that do not count. Yields the seconds of each to its acknowledgement."""


def _alone_by_shmaccum(servers: str, records: int) -> Generator[float]:
    settings = {"bootstrap.servers": servers, "linger.ms": 0, "sender.idle.ms": 0}
    with shmaccum.Producer(settings) as producer:
        for _ in range(_WARMUP + records):
            began = time.perf_counter()
            producer.send(_TOPIC, _VALUE, partition=0).get()
            yield time.perf_counter() - began


def _alone_by_confluent(servers: str, records: int) -> Generator[float]:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True})
    acknowledged: list[object] = []

    def note(error: object, _: object) -> None:
        acknowledged.append(error)

    for _ in range(_WARMUP + records):
        acknowledged.clear()
        began = time.perf_counter()
        producer.produce(_TOPIC, _VALUE, partition=0, on_delivery=note)
        while not acknowledged:
            producer.poll(1.0)
        yield time.perf_counter() - began


def _polled(producer: Any, records: int) -> Generator[float]:
    """Yield 0 for each record; for the last one only once all are acknowledged."""
    count = 0

    def note(error: object, _: object) -> None:
        nonlocal count
        count += error is None

    for some in (_WARMUP, records):
        count = 0
        for number in range(some):
            while True:
                try:
                    producer.produce(_TOPIC, _VALUE, callback=note)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
            if number == some - 1:
                producer.flush()
                assert count == some, f"{count} of {some} records are acknowledged"
            yield 0.0


def _polled_by_shmaccum(servers: str, records: int) -> Generator[float]:
    with confluent.Producer({"bootstrap.servers": servers, "sender.idle.ms": 0}) as producer:
        yield from _polled(producer, records)


def _polled_by_confluent(servers: str, records: int) -> Generator[float]:
    return _polled(confluent_kafka.Producer({"bootstrap.servers": servers}), records)


PROGRAMS: Final[dict[str, tuple[int, dict[str, Program]]]] = {
    "one at a time": (_ALONE, {"shmaccum": _alone_by_shmaccum, "confluent-kafka": _alone_by_confluent}),
    "poll after each": (_POLLED, {"shmaccum": _polled_by_shmaccum, "confluent-kafka": _polled_by_confluent}),
}


def measure(program: Program, servers: str, records: int) -> Figures:
    """Run a program; return its microseconds of a record, also from the call to the acknowledgement if it waits."""
    calls = program(servers, records)
    for _ in range(_WARMUP):
        next(calls)
    pids = [os.getpid(), *descendants(os.getpid())]  # the sender, too
    began, began_cpu_s = time.perf_counter(), sum(map(clock, pids))
    latencies = sorted(next(calls) for _ in range(records))
    seconds = {"wall": (time.perf_counter() - began) / records, "CPU": (sum(map(clock, pids)) - began_cpu_s) / records}
    if latencies[0]:
        seconds = {"median": latencies[records // 2], "99 %": latencies[records * 99 // 100]} | seconds
    calls.close()
    return {column: each * 1e6 for column, each in seconds.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=["sink", "apache"], default="sink")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")


def run(options: argparse.Namespace) -> None:
    with broker(options.broker, [_TOPIC], 1) as servers:
        print_table("µs a record", _rows(servers, options))


def _rows(servers: str, options: argparse.Namespace) -> Iterator[Row]:
    for name, (records, programs) in PROGRAMS.items():
        count = int(records * options.scale)
        contestants = {each: partial(apart, measure, program, servers, count) for each, program in programs.items()}
        yield from compared(take_turns(contestants, options.rounds), f"{name}, ")
