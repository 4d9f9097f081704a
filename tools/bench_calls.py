"""Measures programs that wait for each call, or poll after it, against confluent-kafka.

``python -m tools.bench_calls [--broker apache] [--rounds 3]``. Two programs, of one process, with records of 100 bytes:

* *one at a time*: a record is sent, without lingering, and waited for; then the next one. By `shmaccum.Producer` and by
  confluent-kafka, both idempotent: 3,000 records.
* *poll after each*: ``produce`` with a callback, then ``poll(0)``, by confluent-kafka and by
  `shmaccum.compat.confluent`, each with its own defaults: 300,000 records.

Processor time is that of the process and of our sender, from the first record to the last acknowledgement. The
contestants take turns. Each turn has new processes, and begins after some records that do not count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka

import shmaccum
from shmaccum.compat import confluent
from tools.kafka.cluster import KafkaCluster, ensure_kafka
from tools.kafka.jvm import FOR_LOAD
from tools.sink import running_sink
from tools.support.processes import adopt_orphans

_TOPIC: Final = "calls"
_VALUE: Final = bytes(100)
_ALONE: Final = 3_000
_POLLED: Final = 300_000
_WARMUP: Final = 500
_FORK: Final = multiprocessing.get_context("fork")


class Turn(NamedTuple):
    """What a turn gave, in microseconds of a record."""

    median_us: float
    percentile_99_us: float
    """Both from the call to the acknowledgement, or 0; what follows is for all records."""
    wall_us: float
    cpu_us: float


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


def _take_turn(program: Program, servers: str, records: int, link: Connection) -> None:
    """Run a program in this process, and wait for the processes that it has started."""
    adopt_orphans()
    calls = program(servers, records)
    for _ in range(_WARMUP):
        next(calls)
    sender_s = sum(map(_processor_s, _children()))
    began, began_cpu_s = time.perf_counter(), time.process_time()
    latencies = sorted(next(calls) for _ in range(records))
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu_s
    cpu_s += sum(map(_processor_s, _children())) - sender_s
    link.send(
        Turn(
            latencies[records // 2] * 1e6,
            latencies[records * 99 // 100] * 1e6,
            took_s / records * 1e6,
            cpu_s / records * 1e6,
        )
    )
    calls.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _children() -> list[int]:
    """Return the pids of this process's children, the sender's among them."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _processor_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(program: Program, servers: str, records: int) -> Turn:
    """Give a program its turn, in a process of its own."""
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_take_turn, args=(program, servers, records, theirs))
    process.start()
    theirs.close()
    turn: Turn = ours.recv()
    process.join()
    return turn


@contextmanager
def _broker(kind: str) -> Iterator[str]:
    if kind == "sink":
        with running_sink(1) as servers:
            yield servers
        return
    ensure_kafka()
    with tempfile.TemporaryDirectory() as directory, KafkaCluster(Path(directory), jvm_options=FOR_LOAD) as cluster:
        cluster.admin.create_topic(_TOPIC, 1)
        yield cluster.bootstrap_servers


def main() -> None:
    """Measure, and print medians of the rounds."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=["sink", "apache"], default="sink")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")
    options = parser.parse_args()
    print(f"{'µs a record':34}{'median':>8}{'99 %':>8}{'wall':>8}{'CPU':>8}")
    with _broker(options.broker) as servers:
        for name, (records, contestants) in PROGRAMS.items():
            turns: dict[str, list[Turn]] = {each: [] for each in contestants}
            for _ in range(options.rounds):
                for contestant, program in contestants.items():
                    turns[contestant].append(measure(program, servers, int(records * options.scale)))
            medians = {
                each: [statistics.median(column) for column in zip(*rows, strict=True)] for each, rows in turns.items()
            }
            for contestant, figures in medians.items():
                print(f"{name + ', ' + contestant:34}" + "".join(f"{figure:8.2f}" for figure in figures))
            ours, theirs = medians["shmaccum"], medians["confluent-kafka"]
            ratios = (f"{mine / other:8.2f}" if other else " " * 8 for mine, other in zip(ours, theirs, strict=True))
            print(f"{'  times theirs':34}" + "".join(ratios))


if __name__ == "__main__":
    main()
