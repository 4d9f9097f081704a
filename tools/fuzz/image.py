"""A small slab in the middle of its life, created once and restored before every try.

It holds open, closed, compressed, in-flight, split and completing batches, and unread completions. It also holds what
dead processes leave: allocated slots, a ticket in the queue for memory, and a lock. No live process uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from shmaccum._core import Geometry, Slot
from shmaccum.accumulator.buffer_pool import MemoryWait
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.accumulator_state import attach_for, slab_geometry
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import NetworkError
from shmaccum.shm import names
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.lifecycle import unlink
from shmaccum.shm.lockfile import LockFile
from shmaccum.shm.semaphores import make_semaphore, open_semaphore
from tools.support.accumulators import Accumulators

TOPIC: Final = "orders"
OTHER_TOPIC: Final = "fully.asked.for"
PARTITIONS: Final = 4
NODE: Final = Node(0)
CLUSTER: Final = Cluster(
    {0: NODE}, {TOPIC: PARTITIONS}, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}
)
SLOT_SIZE: Final = 1088
_SLOTS: Final = 30
_LARGEST: Final = 1 << 20


def config_of(name: str, log_dir: Path) -> ProducerConfig:
    """Return the settings of the slab."""
    return ProducerConfig.parse(
        {
            "shmaccum.name": name,
            "transport": "log",
            "log.dir": str(log_dir),
            "num.partitions": PARTITIONS,
            "batch.size": SLOT_SIZE,
            "shmaccum.slot.size": SLOT_SIZE,
            "buffer.memory": _SLOTS * SLOT_SIZE,
            "linger.ms": 0,
            "compression.type": "lz4",
            "max.block.ms": 50,
            "request.timeout.ms": 1000,
            "delivery.timeout.ms": 3000,
            "shmaccum.max.processes": 12,
            "shmaccum.max.topics": 4,
            "shmaccum.max.partitions": 8,
        }
    )


def open_accumulator(config: ProducerConfig) -> Accumulators:
    """Attach to the slab, without detaching: the calling process is about to end."""
    slab = attach_for(config)
    with slab.reporting_damage():
        return Accumulators(slab, config)


class SlabImage:
    """The slab, as files in /dev/shm and as a copy of what is in them. Use as a context manager.

    Attributes:
        config: its settings.
        geometry: its layout.
        memory: the copy of the segment.
    """

    def __init__(self, name: str, log_dir: Path) -> None:
        self.config: Final = config_of(name, log_dir)
        self.geometry: Final[Geometry] = slab_geometry(self.config)
        self._name = name

    def __enter__(self) -> Self:
        for life in (
            _be_first_producer,
            _be_sender,
            _be_transactional,
            _be_waiting_producer,
            _be_killed_with_a_lock,
        ):
            _live(lambda life=life: life(open_accumulator(self.config)))  # type: ignore[misc]
        self.memory = Path(names.segment_path(self._name)).read_bytes()
        self._private = names.PrivateNames.of(self._name, memoryview(self.memory).cast("Q"))
        semaphore = open_semaphore(self._private.pool_semaphore())
        self._units: int = semaphore.value
        semaphore.close()
        return self

    def __exit__(self, *error: object) -> None:
        unlink(self._name)

    def restore(self) -> None:
        """Restore the slab, also if it no longer exists; no process can use it meanwhile."""
        while not self._restored():
            pass  # another producer of this host has just removed the lock file

    def _restored(self) -> bool:
        # Any other producer of this host would remove a slab that is half there (`shmaccum.shm.reclaim`).
        with contextlib.closing(LockFile.open(self._name, create=True)) as lock_file, lock_file.lifecycle():
            if not lock_file.is_current():
                return False
            unlink(self._name, keep_lock_file=True)
            path = names.segment_path(self._name)
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(self.memory)
            os.mkfifo(self._private.doorbell_path(), 0o600)
            make_semaphore(self._private.pool_semaphore(), self._units).close()
            return True


def _live(life: Callable[[], object]) -> None:
    """Have a process live, and die without a word to the slab."""
    pid = os.fork()
    if not pid:
        try:
            life()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the slab to be damaged could not be made")


def _append(accumulator: Accumulators, partition: int, value: bytes) -> None:
    accumulator.append(TopicPartition(TOPIC, partition), 1_700_000_000_000, b"key", value, max_block_ms=50)


def _be_first_producer(accumulator: Accumulators) -> None:
    accumulator.map.request(TOPIC)
    accumulator.map.update(TOPIC, PARTITIONS, None)
    accumulator.map.request(OTHER_TOPIC)
    for partition in range(PARTITIONS):
        for number in range(4):
            _append(accumulator, partition, b"%d" % number * 400)
    pool = accumulator.pool
    rest = [pool.allocate(SLOT_SIZE, 0) for _ in range(pool.available_memory() // SLOT_SIZE)]
    pool.deallocate(*rest[::2])
    _append(accumulator, 2, os.urandom(2 * SLOT_SIZE))  # in slots that are not adjacent
    pool.deallocate(*rest[1::2])


def _be_sender(accumulator: Accumulators) -> None:
    accumulator.slab.become_sender()
    accumulator.sender.recover()
    accumulator.sender.sequences.use_producer_id(7, 0)
    incidents = Incidents(accumulator.slab)
    incidents.note(NetworkError, "the broker has closed the connection", lasts=True)
    incidents.note_log("/var/log/sender.log")
    drained = [
        *accumulator.sender.drain(CLUSTER, NODE, _LARGEST, 0),
        *accumulator.sender.drain(CLUSTER, NODE, _LARGEST, 0),
    ]
    stored, tried_again, in_parts, completing = drained[:4]
    accumulator.sender.complete([BatchOutcome(stored, 0)])
    in_parts.cut(1)
    accumulator.sender.reenqueue(in_parts, 0)
    accumulator.sender.reenqueue(tried_again, 0)
    accumulator.sender.counts.conclude(completing, 0, -1)
    for batch in accumulator.sender.drain(CLUSTER, NODE, _LARGEST, 10_000):
        accumulator.slab.words[batch.at + Slot.DRAINED_MS] = 1


def _be_transactional(accumulator: Accumulators) -> None:
    """Die in a transaction, with records queued."""
    lane = LaneTable(accumulator.slab, accumulator.map).lease("orders-1")
    lane.open(7, 1, 2)
    body = accumulator.format.encode_body(None, b"in a transaction", ())
    queue = lane.queue(accumulator.map.queues[TopicPartition(TOPIC, 1)])
    accumulator.append_to(queue, 1_700_000_000_000, body, None, 50)


def _be_waiting_producer(accumulator: Accumulators) -> None:
    _append(accumulator, 0, b"of another producer")
    accumulator.pool.allocate(SLOT_SIZE, 0)
    accumulator.pool.look(MemoryWait(SLOT_SIZE, 1, 1e9), [])


def _be_killed_with_a_lock(accumulator: Accumulators) -> None:
    accumulator.map.queues[TopicPartition(TOPIC, 3)].lock.core.acquire_now()
    os._exit(0)
