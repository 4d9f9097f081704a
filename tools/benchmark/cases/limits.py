"""Case 7: the machine's limits, to judge the other cases (`tools.benchmark.comparisons`)."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import posix_ipc

from shmaccum._core import crc32c_of
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import record_format
from tools.benchmark.brokers import SINK
from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.environment import Environment, Member

BATCH_SIZE: Final = 16 * 1024
BATCHES_A_REQUEST: Final = 4
IN_FLIGHT: Final = 5
SECONDS: Final = 0.5
MACHINE: Final = "this machine"
"""The only contestant."""
FIGURE: Final = "cost"
"""The figure of every limit, in the unit that `_COSTS` names."""

_COSTS: Final = {
    "memory-copy": ("memory copy, into memory that no cache holds", "ns/byte"),
    "crc": ("CRC-32C of a batch", "ns/byte"),
    "semaphore": ("semaphore, a turn of wait and post from Python, processor time", "ns"),
    "semaphore-contended": ("the same with two processes at it, wall time", "ns"),
    "socket": ("ready-made Produce requests into the sink, processor time of the client", "ns/byte"),
    "round-trip": ("one such request and its answer, wall time", "us"),
}


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return one variant for each cost that no producer can avoid; the transfer from Spark is a variant of case 4."""
    seconds = environment.seconds(SECONDS, least=0.05)
    measured: dict[str, Callable[[], float]] = {
        "memory-copy": lambda: memory_copy(seconds),
        "crc": lambda: checksum(seconds),
        "semaphore": lambda: semaphore(environment, seconds, processes=1),
        "semaphore-contended": lambda: semaphore(environment, seconds, processes=2),
        "socket": lambda: _into_sink(environment, seconds, IN_FLIGHT)[0],
        "round-trip": lambda: _into_sink(environment, seconds, 1)[1],
    }
    return [
        Variant(
            name=name,
            title=f"{_COSTS[name][0]} ({_COSTS[name][1]})",
            contestants=(MACHINE,),
            turn=lambda _, measure=measure: {FIGURE: measure()},  # type: ignore[misc]
            figures=(FIGURE,),
            broker=SINK if name in ("socket", "round-trip") else "",
            facts={"unit": _COSTS[name][1]},
            warm_up=False,
        )
        for name, measure in measured.items()
    ]


def memory_copy(seconds: float) -> float:
    """Return nanoseconds per byte for copying batches over 64 MiB."""
    source, target = np.ones(64 << 20, np.uint8), np.zeros(64 << 20, np.uint8)
    places = range(0, len(source), BATCH_SIZE)

    def run() -> int:
        for place in places:
            target[place : place + BATCH_SIZE] = source[place : place + BATCH_SIZE]
        return len(source)

    return _cost(run, seconds)


def checksum(seconds: float) -> float:
    """Return nanoseconds per byte for the CRC of a batch."""
    batch = memoryview(os.urandom(BATCH_SIZE))

    def run() -> int:
        for _ in range(1000):
            crc32c_of(batch)
        return 1000 * BATCH_SIZE

    return _cost(run, seconds)


def semaphore(environment: Environment, seconds: float, *, processes: int) -> float:
    """Return nanoseconds per turn: processor time for one process, wall time for several together."""
    lock = posix_ipc.Semaphore(f"/{environment.new_name()}", posix_ipc.O_CREX, initial_value=1)
    try:

        def work(member: Member) -> None:
            member.wait_for_go()
            acquire, release = lock.acquire, lock.release
            turns = 0
            while time.monotonic() < member.began_s + seconds:
                for _ in range(1000):
                    acquire()
                    release()
                turns += 1000
            member.done(turns)

        measured = environment.measure(None, [work] * processes)
    finally:
        lock.unlink()
        lock.close()
    turns: int = sum(report.result for report in measured.reports)
    seconds_spent = measured.usage.contestant_s if processes == 1 else measured.wall_s
    return seconds_spent / turns * 1e9


def _into_sink(environment: Environment, seconds: float, in_flight: int) -> tuple[float, float]:
    """Send requests over a bare socket; return ns of processor time per byte, and µs per request."""
    broker = environment.broker(SINK)
    with environment.topic(broker, BATCHES_A_REQUEST) as topic:
        host, _, port = broker.servers.rpartition(":")
        request = produce_request(topic)

        def work(member: Member) -> None:
            with socket.create_connection((host, int(port))) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                member.wait_for_go()
                sent = answered = 0
                while True:
                    while sent - answered < in_flight and time.monotonic() < member.began_s + seconds:
                        connection.sendall(request)
                        sent += 1
                    if answered == sent:  # the time is up
                        break
                    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
                    connection.recv(size, socket.MSG_WAITALL)
                    answered += 1
                member.done(sent)

        measured = environment.measure(broker, [work])
        (report,) = measured.reports
        environment.check_delivered(broker, topic, report.result * BATCHES_A_REQUEST)
    return (
        measured.usage.contestant_s / (report.result * len(request)) * 1e9,
        measured.wall_s / report.result * 1e6,
    )


def full_batch() -> memoryview:
    """Return a sealed batch of one record, of `BATCH_SIZE`."""
    form = record_format(2)
    body = form.encode_body(None, bytes(BATCH_SIZE - form.header_size - form.record_overhead_max), ())
    record = form.encode_record(0, 0, 0, body)
    return form.seal(memoryview(bytearray(form.header_size) + record), BatchFields(1, 0, 0), CompressionType.NONE)


def produce_request(topic: str) -> bytes:
    """Return a Produce request, version 7, with a full batch for each of the first partitions."""
    batch, name = full_batch(), topic.encode()
    parts = [struct.pack(">hhih", 0, 7, 1, -1), struct.pack(">hhi", -1, -1, 30_000)]
    parts += [struct.pack(">ih", 1, len(name)), name, struct.pack(">i", BATCHES_A_REQUEST)]
    for partition in range(BATCHES_A_REQUEST):
        parts += [struct.pack(">ii", partition, len(batch)), bytes(batch)]
    request = b"".join(parts)
    return struct.pack(">i", len(request)) + request


def _cost(run: Callable[[], int], seconds: float) -> float:
    """Return nanoseconds of processor time per unit of work, which ``run`` counts and returns."""
    run()
    done = 0
    began = time.process_time_ns()
    while time.process_time_ns() < began + seconds * 1e9:
        done += run()
    return (time.process_time_ns() - began) / done


LIMITS: Final = Case(7, "limits", "The limits", _variants)
