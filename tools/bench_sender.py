"""Measures the sender alone: the cost of sending a batch, and of finding it.

``python -m tools.bench_sender [--partitions 1,8,64] [--rounds 5]``. The tool first fills a slab with full batches of
16 KiB, which does not count. Then the sender empties it into an acknowledging sink in another process (`tools.sink`).
The cost is the processor time, user and system, of the sender's process: ready, drain, sequence numbers, CRC, request,
response, completion, memory. A batch is one record here, which makes no difference to the sender.

The second table is `ready` and `drain` alone, with ten batches to send among more and more partitions. The others are
empty or hold a batch that still lingers. The least of all rounds counts, because it was disturbed least.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from shmaccum._core import Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.sender.process import make_transport
from shmaccum.sender.sender import Sender
from shmaccum.shm.lifecycle import detach
from tools.sink import running_sink
from tools.support.accumulators import Accumulators

BATCH_SIZE: Final = 16 * 1024
BATCHES: Final = 2048
TOPIC: Final = "bench-sender"
READY_BATCHES: Final = 10
UNLIMITED: Final = 1 << 30


class SenderCost(NamedTuple):
    """Cost of sending full batches."""

    partitions: int
    batches_a_request: float
    cpu_us_a_batch: float
    system_us_a_batch: float
    megabytes_a_core_second: float
    """10^6 bytes sent in one second of one core."""


class FindingCost(NamedTuple):
    """Cost of `ready` and `drain` for `READY_BATCHES` batches."""

    partitions: int
    lingering: bool
    """Whether the other partitions hold a batch that is not due yet."""
    cpu_us: float


class _Slab:
    """A slab whose producer and sender are this process."""

    def __init__(self, partitions: int, servers: str = "127.0.0.1:1", **settings: object) -> None:
        defaults: dict[str, object] = {
            "bootstrap.servers": servers,
            "shmaccum.name": f"bench-sender-{os.getpid()}",
            "batch.size": BATCH_SIZE,
            "buffer.memory": BATCHES * BATCH_SIZE,
            "max.request.size": 64 * BATCH_SIZE,
            "shmaccum.max.partitions": max(64, partitions),
        }
        self.config = ProducerConfig.parse(
            defaults | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.slab = attach_for(self.config)
        self.accumulator = Accumulators(self.slab, self.config)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]

    def fill(self, batches: int, partitions: int) -> None:
        """Append this many full batches, in turn to each of the first partitions."""
        form = self.accumulator.format
        overhead = form.header_size + len(form.encode_record(0, 0, 0, bytes(BATCH_SIZE))) - BATCH_SIZE
        body = form.encode_body(None, bytes(BATCH_SIZE), ())
        body = form.encode_body(None, bytes(2 * BATCH_SIZE - len(body) - overhead), ())
        for number in range(batches):
            self.append(number % partitions, body)

    def append(self, partition: int, body: bytes) -> None:
        """Append a record with this body."""
        queue = self.accumulator.map.queues[self.partitions[partition]]
        self.accumulator.append_to(queue, 0, body, None, 0)


@contextmanager
def _slab(partitions: int, servers: str = "127.0.0.1:1", **settings: object) -> Iterator[_Slab]:
    slab = _Slab(partitions, servers, **settings)
    try:
        yield slab
    finally:
        slab.accumulator.sender.recover()
        slab.accumulator.sender.abort_incomplete_batches(KafkaError)
        slab.slab.reap_dead()
        detach(slab.slab)


def sending_costs(partitions: int, rounds: int, *, batches: int = BATCHES) -> list[SenderCost]:
    """Empty a slab with this many full batches into a sink, round by round; return the cost of each round."""
    with running_sink(partitions) as servers, _slab(partitions, servers) as slab:
        transport = make_transport(slab.config)
        transport.start()
        doorbell = slab.slab.become_sender()
        sender = Sender(slab.accumulator.sender, transport, doorbell, slab.config)
        slab.accumulator.map.request(TOPIC)
        try:
            while not all(each in slab.accumulator.map.queues for each in slab.partitions):
                sender.run_once(_now_ms())
                slab.accumulator.map.refresh()
            _empty(slab, sender, partitions)  # opens the connection; the partitions' first batches are sent alone
            return [_empty(slab, sender, batches) for _ in range(rounds)]
        finally:
            transport.close()
            slab.slab.resign_as_sender(doorbell)


def _empty(slab: _Slab, sender: Sender, batches: int) -> SenderCost:
    slab.fill(batches, len(slab.partitions))
    words = slab.slab.words
    sent, requests, size = words[Super.BATCHES_SENT], words[Super.REQUESTS_SENT], words[Super.BYTES_SENT]
    before = resource.getrusage(resource.RUSAGE_SELF)
    while words[Super.BATCHES_SENT] - sent < batches:
        sender.run_once(_now_ms())
    after = resource.getrusage(resource.RUSAGE_SELF)
    system_s = after.ru_stime - before.ru_stime
    cpu_s = after.ru_utime - before.ru_utime + system_s
    return SenderCost(
        len(slab.partitions),
        batches / (words[Super.REQUESTS_SENT] - requests),
        cpu_s / batches * 1e6,
        system_s / batches * 1e6,
        (words[Super.BYTES_SENT] - size) / cpu_s / 1e6,
    )


def finding_costs(partitions: int, rounds: int, *, lingering: bool) -> list[FindingCost]:
    """Fill some partitions, find and drain their batches, and return the cost, round by round."""
    # The other partitions belong to another node, or they would be drained too.
    leaders = {TopicPartition(TOPIC, number): int(number >= READY_BATCHES) for number in range(partitions)}
    cluster = Cluster({0: Node(0), 1: Node(1)}, {TOPIC: partitions}, leaders)
    with _slab(partitions, linger_ms=3_600_000, delivery_timeout_ms=7_200_000, enable_idempotence=False) as slab:
        accumulator = slab.accumulator
        accumulator.map.request(TOPIC)
        accumulator.map.update(TOPIC, partitions, None)
        if lingering:
            for number in range(READY_BATCHES, partitions):
                slab.append(number, bytes(10))
        costs: list[FindingCost] = []
        for _ in range(rounds):
            slab.fill(READY_BATCHES, READY_BATCHES)
            now_ms = _now_ms()
            begun = time.perf_counter()
            ready = accumulator.sender.ready(cluster, now_ms)
            drained = accumulator.sender.drain(cluster, ready.ready_nodes, UNLIMITED, now_ms)[0]
            costs.append(FindingCost(partitions, lingering, (time.perf_counter() - begun) * 1e6))
            assert len(drained) == READY_BATCHES
            accumulator.sender.complete([BatchOutcome(batch, 0) for batch in drained])
        return costs


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_sender", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", default="1,8,64", help="of the topic, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("partitions  batches/request  CPU a batch  of it system  a core")
    for partitions in map(int, arguments.partitions.split(",")):
        best = min(sending_costs(partitions, arguments.rounds), key=lambda cost: cost.cpu_us_a_batch)
        print(
            f"{best.partitions:10}  {best.batches_a_request:15.1f}  {best.cpu_us_a_batch:8.1f} µs  "
            f"{best.system_us_a_batch:9.1f} µs  {best.megabytes_a_core_second:.0f} MB/s"
        )
    print(f"\npartitions  the others  ready + drain of {READY_BATCHES}")
    for lingering in (False, True):
        for partitions in (10, 100, 1000):
            best_find = min(finding_costs(partitions, arguments.rounds * 20, lingering=lingering), key=_cpu_us)
            others = "lingering" if lingering else "empty"
            print(f"{partitions:10}  {others:>10}  {best_find.cpu_us:.0f} µs")


def _cpu_us(cost: FindingCost) -> float:
    return cost.cpu_us


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


if __name__ == "__main__":
    main()
