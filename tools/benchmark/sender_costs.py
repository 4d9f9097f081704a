"""The sender alone: what sending a batch costs, and finding it.

The tool first fills a slab with full batches of 16 KiB, which does not count. Then the sender empties it into an
acknowledging sink in another process (`tools.sink`). The cost is the processor time, user and system, of the sender's
process: ready, drain, sequence numbers, CRC, request, response, completion, memory. A batch is one record here, which
makes no difference to the sender.

Finding is `ready` and `drain` alone, with ten batches to send among more and more partitions. The others are empty or
hold a batch that still lingers.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from shmaccum._core import Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node, TopicPartition
from shmaccum.sender.sender import Sender
from tools.sink import running_sink
from tools.support.own_slab import OwnSlab, now_ms

BATCH_SIZE: Final = 16 * 1024
BATCHES: Final = 2048
TOPIC: Final = "bench-sender"
READY_BATCHES: Final = 10
UNLIMITED: Final = 1 << 30


class _Slab(OwnSlab):
    """A slab with memory for all batches."""

    def __init__(self, partitions: int, settings: Mapping[str, object]) -> None:
        defaults = {
            "shmaccum.name": f"bench-sender-{os.getpid()}",
            "batch.size": BATCH_SIZE,
            "batch.max.bytes": BATCH_SIZE,
            "buffer.memory": BATCHES * BATCH_SIZE,
            "max.request.size": 64 * BATCH_SIZE,
            "shmaccum.max.partitions": max(64, partitions),
        }
        super().__init__({**defaults, **settings})
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
        queue = self.accumulator.map.queues[self.partitions[partition]]
        self.accumulator.append_to(queue, 0, body, None, 0)


def sending_costs(partitions: int, rounds: int, *, batches: int = BATCHES) -> list[dict[str, float]]:
    """Empty a slab with this many full batches into a sink, round by round; return the cost of each round."""
    with (
        running_sink(partitions) as servers,
        closing(_Slab(partitions, {"bootstrap.servers": servers})) as slab,
        slab.sending(TOPIC, partitions) as (sender, _),
    ):
        _empty(slab, sender, partitions)  # opens the connection; the partitions' first batches are sent alone
        return [_empty(slab, sender, batches) for _ in range(rounds)]


def _empty(slab: _Slab, sender: Sender, batches: int) -> dict[str, float]:
    slab.fill(batches, len(slab.partitions))
    words = slab.slab.words
    sent, requests, size = words[Super.BATCHES_SENT], words[Super.REQUESTS_SENT], words[Super.BYTES_SENT]

    before = resource.getrusage(resource.RUSAGE_SELF)
    while words[Super.BATCHES_SENT] - sent < batches:
        sender.run_once(now_ms())
    after = resource.getrusage(resource.RUSAGE_SELF)
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return {
        "batches_per_request": batches / (words[Super.REQUESTS_SENT] - requests),
        "cpu_us_per_batch": (user_s + system_s) / batches * 1e6,
        "system_us_per_batch": system_s / batches * 1e6,
        "mb_per_core_s": (words[Super.BYTES_SENT] - size) / (user_s + system_s) / 1e6,
    }


def finding_costs(partitions: int, rounds: int, *, lingering: bool) -> list[float]:
    """Fill some partitions, find and drain their batches, and return the microseconds, round by round."""
    # The other partitions belong to another node, or they would be drained too.
    leaders = {TopicPartition(TOPIC, number): int(number >= READY_BATCHES) for number in range(partitions)}
    cluster = Cluster({0: Node(0), 1: Node(1)}, {TOPIC: partitions}, leaders)
    settings = {"linger.ms": 3_600_000, "delivery.timeout.ms": 7_200_000, "enable.idempotence": False}
    with closing(_Slab(partitions, settings)) as slab:
        accumulator = slab.accumulator
        accumulator.map.request(TOPIC)
        accumulator.map.update(TOPIC, partitions, None)
        if lingering:
            for number in range(READY_BATCHES, partitions):
                slab.append(number, bytes(10))
        costs: list[float] = []
        for _ in range(rounds):
            slab.fill(READY_BATCHES, READY_BATCHES)
            now = now_ms()
            begun = time.perf_counter()
            (node,) = accumulator.sender.ready(cluster, now).ready_nodes
            drained = accumulator.sender.drain(cluster, node, UNLIMITED, now)
            costs.append((time.perf_counter() - begun) * 1e6)
            assert len(drained) == READY_BATCHES
            accumulator.sender.complete([BatchOutcome(batch, 0) for batch in drained])
        return costs
