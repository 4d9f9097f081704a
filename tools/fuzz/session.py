"""A small slab in the middle of its life, and what is done with it when it is damaged.

The slab is created once and restored before every try. It holds open, closed, compressed, in-flight, split and
completing batches, and unread completions. It also holds what dead processes leave: allocated slots, a ticket in the
queue for memory, and a lock. No live process uses it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import rich.console
import rich.table  # noqa: F401

from shmaccum._core import Geometry
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.buffer_pool import MemoryWait
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.accumulator_state import attach_for, slab_geometry
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cli.main import main
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import NetworkError, UnknownServerError
from shmaccum.producer.producer import Producer
from shmaccum.record.columns import ColumnBodies
from shmaccum.sender.process import make_transport
from shmaccum.sender.sender import Sender
from shmaccum.shm import names
from shmaccum.shm.files import make_semaphore, open_semaphore
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.lifecycle import attach, destroy, unlink
from shmaccum.shm.lockfile import LockFile
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.wakeup import Doorbell
from tools.fuzz.child import try_in_child
from tools.support.accumulators import Accumulators
from tools.support.own_slab import now_ms

TOPIC: Final = "orders"
OTHER_TOPIC: Final = "fully.asked.for"
PARTITIONS: Final = 4
NODE: Final = Node(0)
CLUSTER: Final = Cluster(
    {0: NODE}, {TOPIC: PARTITIONS}, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}
)
SLOT_SIZE: Final = 1088
_MAX_REQUEST: Final = 1 << 20


def open_accumulator(config: ProducerConfig) -> Accumulators:
    """Attach to the slab, without detaching: the calling process is about to end."""
    slab = attach_for(config)
    with slab.reporting_damage():
        return Accumulators(slab, config)


class SlabImage:
    """The slab, as files in /dev/shm and as a copy of its segment (``memory``). Use as a context manager."""

    def __init__(self, name: str, log_dir: Path) -> None:
        self.config: Final = ProducerConfig.parse(
            {
                "shmaccum.name": name,
                "transport": "log",
                "log.dir": str(log_dir),
                "num.partitions": PARTITIONS,
                "batch.size": SLOT_SIZE,
                "shmaccum.slot.size": SLOT_SIZE,
                "buffer.memory": 30 * SLOT_SIZE,
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
        self.geometry: Final[Geometry] = slab_geometry(self.config)
        self._name = name

    def __enter__(self) -> Self:

        def killed_with_a_lock(accumulator: Accumulators) -> None:
            accumulator.map.queues[TopicPartition(TOPIC, 3)].lock.core.acquire_now()

        for life in (_first_producer, _sender, _transactional, _waiting_producer, killed_with_a_lock):
            _live(life, self.config)
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
        while True:
            # Any other producer of this host would remove a slab that is half there (`shmaccum.shm.reclaim`).
            with contextlib.closing(LockFile.open(self._name, create=True)) as lock_file, lock_file.lifecycle():
                if not lock_file.is_current():
                    continue  # another producer of this host has just removed the lock file
                unlink(self._name, keep_lock_file=True)
                path = names.segment_path(self._name)
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(self.memory)
                os.mkfifo(self._private.doorbell_path(), 0o600)
                make_semaphore(self._private.pool_semaphore(), self._units).close()
                return


def _live(life: Callable[[Accumulators], object], config: ProducerConfig) -> None:
    """Have a process live, and die without a word to the slab."""

    def lived() -> str:
        life(open_accumulator(config))
        return "lived"

    outcome, wrong = try_in_child(lived)
    if outcome != "lived":
        raise RuntimeError(f"the slab to be damaged could not be made: {outcome} {wrong}")


def _append(accumulator: Accumulators, partition: int, value: bytes) -> None:
    accumulator.append(TopicPartition(TOPIC, partition), 1_700_000_000_000, b"key", value, max_block_ms=50)


def _first_producer(accumulator: Accumulators) -> None:
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


def _sender(accumulator: Accumulators) -> None:
    accumulator.slab.become_sender()
    accumulator.sender.recover()
    accumulator.sender.sequences.use_producer_id(7, 0)
    incidents = Incidents(accumulator.slab)
    incidents.note(NetworkError, "the broker has closed the connection", lasts=True)
    incidents.note_log("/var/log/sender.log")
    drained = [
        *accumulator.sender.drain(CLUSTER, NODE, _MAX_REQUEST, 0),
        *accumulator.sender.drain(CLUSTER, NODE, _MAX_REQUEST, 0),
    ]
    stored, tried_again, in_parts, completing = drained[:4]
    accumulator.sender.complete([BatchOutcome(stored, 0)])
    in_parts.cut(1)
    accumulator.sender.reenqueue(in_parts, 0)
    accumulator.sender.reenqueue(tried_again, 0)
    accumulator.sender.counts.conclude(completing, 0, -1)
    accumulator.sender.drain(CLUSTER, NODE, _MAX_REQUEST, 10_000)


def _transactional(accumulator: Accumulators) -> None:
    """Die in a transaction, with records queued."""
    lane = LaneTable(accumulator.slab, accumulator.map).lease("orders-1")
    lane.open(7, 1, 2)
    body = accumulator.format.encode_body(None, b"in a transaction", ())
    queue = lane.queue(accumulator.map.queues[TopicPartition(TOPIC, 1)])
    accumulator.append_to(queue, 1_700_000_000_000, body, None, 50)


def _waiting_producer(accumulator: Accumulators) -> None:
    _append(accumulator, 0, b"of another producer")
    accumulator.pool.allocate(SLOT_SIZE, 0)
    accumulator.pool.look(MemoryWait(SLOT_SIZE, 1, 1e9), [])


# --- what is done -----------------------------------------------------------------------------------------

_PATIENCE_S: Final = MIN_TIMEOUT_S
_COLUMNS: Final = pa.record_batch({"value": pa.array([b"%d" % number * 30 for number in range(60)], pa.binary())})
_LARGE_VALUES: Final = pa.array([b"%d" % number + bytes(SLOT_SIZE // 4) for number in range(6)], pa.binary())


class Session:
    """One process that uses the slab of an image, as producers and senders do.

    Damage comes before it attaches or at any time after that. It is the sender itself, so that no other one is started.
    """

    def __init__(self, image: SlabImage) -> None:
        self.config = image.config
        self.drained: list[RecordBatch] = []

    def do(self, operation: str) -> None:
        if operation in _WHOLE:
            _WHOLE[operation](self)
        else:
            # What stands around these where programs use them: `serve`, `CallGuard`.
            with self.both.slab.reporting_damage():
                _PIECES[operation](self)

    @cached_property
    def both(self) -> Accumulators:
        """Both halves of the accumulator."""
        accumulator = open_accumulator(self.config)
        # Otherwise a lock whose holder cannot be identified takes a minute to time out.
        accumulator.slab.set_lock_timeout(_PATIENCE_S)
        return accumulator

    @cached_property
    def doorbell(self) -> Doorbell:
        return self.both.slab.become_sender()

    @cached_property
    def sender(self) -> Sender:
        with self.both.slab.reporting_damage():
            doorbell = self.doorbell
            transport = make_transport(self.config)
            transport.start()
            return Sender(self.both.sender, transport, doorbell, self.config)

    @cached_property
    def producer(self) -> Producer:
        assert self.sender  # with it, the producer does not start another one
        return Producer(self.config)

    def take_drained(self) -> list[RecordBatch]:
        drained, self.drained = self.drained, []
        return drained


def _send(session: Session) -> None:
    for partition in range(PARTITIONS):
        session.producer.send(TOPIC, b"v" * 300, partition=partition)
    session.producer.send(TOPIC, b"of any partition")


def _status(session: Session) -> None:
    for options in ((), ("--json",)):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(("status", session.config.shmaccum_name, *options))


def _append_records(session: Session) -> None:
    for queue in session.both.map.by_entry:
        body = session.both.format.encode_body(None, b"appended", ())
        session.both.append_to(queue, 1_700_000_000_001, body, None, 20)


def _append_columns(session: Session) -> None:
    bodies = ColumnBodies(session.both.format, None, _LARGE_VALUES, None, 0)
    for queue in session.both.map.by_entry:
        future = FutureColumnsMetadata(len(_LARGE_VALUES), session.both.producer.pending)
        session.both.append_columns(queue, bodies.rows(0, len(bodies)), future, 20)


def _allocate(session: Session) -> None:
    pool = session.both.pool
    taken = [pool.allocate(SLOT_SIZE, 20), pool.allocate(2 * SLOT_SIZE, 20)]
    pool.deallocate(*taken)


def _recover(session: Session) -> None:
    session.drained = []
    session.both.sender.recover()


def _drain(session: Session) -> None:
    session.drained += session.both.sender.drain(CLUSTER, NODE, _MAX_REQUEST, now_ms())


def _reenqueue(session: Session) -> None:
    for batch in session.take_drained():
        session.both.sender.reenqueue(batch, now_ms())


def _rebuild(session: Session) -> None:
    slab = session.both.slab
    for lock in slab.locks:
        lock.run(partial(slab.rebuild, lock.number), _PATIENCE_S)


def _keep_house(session: Session) -> None:
    session.both.pool.reclaim()
    session.both.slab.reap_dead()


def _serve(session: Session) -> None:
    """Be the sender for some passes, with its recovery."""
    sender = session.sender
    _recover(session)
    for _ in range(8):
        session.doorbell.ring()  # no pass sleeps for longer than it takes to find that out
        sender.run_once(now_ms())


_WHOLE: Final[dict[str, Callable[[Session], object]]] = {
    "attach": lambda session: attach(session.config.shmaccum_name),
    "send": _send,
    "send_large": lambda session: session.producer.send(TOPIC, os.urandom(2 * SLOT_SIZE), partition=1),
    "send_batch": lambda session: session.producer.send_batch(TOPIC, _COLUMNS),
    "send_to_new_topic": lambda session: session.producer.send(OTHER_TOPIC, b"value"),
    "poll": lambda session: session.producer.poll(0.01),
    "flush": lambda session: session.producer.flush(0.05),
    "metrics": lambda session: session.producer.metrics(),
    "close": lambda session: session.producer.close(0.05),
    "status": _status,
    "destroy": lambda session: destroy(session.config.shmaccum_name, force=True),
}
"""As programs do it."""
_PIECES: Final[dict[str, Callable[[Session], object]]] = {
    "append": _append_records,
    "append_columns": _append_columns,
    "allocate": _allocate,
    "wait_for_memory": lambda session: session.both.pool.allocate(session.both.pool.total_memory, 20),
    "ready": lambda session: session.both.sender.ready(CLUSTER, now_ms()),
    "drain": _drain,
    "complete": lambda session: session.both.sender.complete(
        [BatchOutcome(each, 0) for each in session.take_drained()]
    ),
    "reenqueue": _reenqueue,
    "recover": _recover,
    "expire": lambda session: session.both.sender.abort_expired_batches(now_ms() + 1_000_000),
    "abort": lambda session: session.both.sender.abort_incomplete_batches(UnknownServerError),
    "rebuild": _rebuild,
    "keep_house": _keep_house,
    "serve": _serve,
}
OPERATIONS: Final = (*_WHOLE, *_PIECES)
"""All that can be done with the slab, by the names that plans call it by."""
