"""What is done with a damaged slab, by the names that plans call it by.

A `Session` is one process: it has the slab as producers and senders have it, and damage comes before it attaches or at
any time after that. It is the sender itself, so that no other one is started.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Final

import pyarrow as pa
import rich.console
import rich.table  # noqa: F401

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cli.main import main
from shmaccum.errors import UnknownServerError
from shmaccum.producer.producer import Producer
from shmaccum.record.columns.bodies import ColumnBodies
from shmaccum.sender.process import make_transport
from shmaccum.sender.sender import Sender
from shmaccum.shm.lifecycle import attach, destroy
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.wakeup import Doorbell
from tools.fuzz.image import CLUSTER, NODE, OTHER_TOPIC, PARTITIONS, SLOT_SIZE, TOPIC, SlabImage, open_accumulator
from tools.support.accumulators import Accumulators

_PATIENCE_S: Final = MIN_TIMEOUT_S
_PASSES: Final = 8
_MAX_REQUEST: Final = 1 << 20
_COLUMNS: Final = pa.record_batch({"value": pa.array([b"%d" % number * 30 for number in range(60)], pa.binary())})
_LARGE_VALUES: Final = pa.array([b"%d" % number + bytes(SLOT_SIZE // 4) for number in range(6)], pa.binary())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Session:
    """One process that uses the slab of an image."""

    def __init__(self, image: SlabImage) -> None:
        self._image = image
        self._drained: list[RecordBatch] = []

    def do(self, operation: str) -> None:
        """Do one thing.

        Raises:
            ShmaccumError: it cannot be done; says why.
        """
        act = OPERATIONS[operation]
        if act in _RAW:
            # What stands around these where programs use them: `serve`, `CallGuard`.
            with self._accumulator.slab.reporting_damage():
                act(self)
        else:
            act(self)

    @cached_property
    def _accumulator(self) -> Accumulators:
        accumulator = open_accumulator(self._image.config)
        # Otherwise a lock whose holder cannot be identified takes a minute to time out.
        accumulator.slab.set_lock_timeout(_PATIENCE_S)
        return accumulator

    @cached_property
    def _doorbell(self) -> Doorbell:
        return self._accumulator.slab.become_sender()

    @cached_property
    def _sender(self) -> Sender:
        with self._accumulator.slab.reporting_damage():
            doorbell = self._doorbell
            transport = make_transport(self._image.config)
            transport.start()
            return Sender(self._accumulator.sender, transport, doorbell, self._image.config)

    @cached_property
    def _producer(self) -> Producer:
        assert self._sender  # with it, the producer does not start another one
        return Producer(self._image.config)

    # --- as programs do it --------------------------------------------------------------------------

    def _attach(self) -> None:
        attach(self._image.config.shmaccum_name)

    def _send(self) -> None:
        for partition in range(PARTITIONS):
            self._producer.send(TOPIC, b"v" * 300, partition=partition)
        self._producer.send(TOPIC, b"of any partition")

    def _send_large(self) -> None:
        self._producer.send(TOPIC, os.urandom(2 * SLOT_SIZE), partition=1)

    def _send_batch(self) -> None:
        self._producer.send_batch(TOPIC, _COLUMNS)

    def _send_to_new_topic(self) -> None:
        self._producer.send(OTHER_TOPIC, b"value")

    def _poll(self) -> None:
        self._producer.poll(0.01)

    def _flush(self) -> None:
        self._producer.flush(0.05)

    def _metrics(self) -> None:
        self._producer.metrics()

    def _close(self) -> None:
        self._producer.close(0.05)

    def _serve(self) -> None:
        """Be the sender for some passes, with its recovery."""
        sender, self._drained = self._sender, []
        self._accumulator.sender.recover()
        for _ in range(_PASSES):
            self._doorbell.ring()  # no pass sleeps for longer than it takes to find that out
            sender.run_once(_now_ms())

    def _status(self) -> None:
        _command("status", self._image.config.shmaccum_name)
        _command("status", self._image.config.shmaccum_name, "--json")

    def _destroy(self) -> None:
        destroy(self._image.config.shmaccum_name, force=True)

    # --- piece by piece -----------------------------------------------------------------------------

    def _append(self) -> None:
        for queue in self._accumulator.map.by_entry:
            body = self._accumulator.format.encode_body(None, b"appended", ())
            self._accumulator.append_to(queue, 1_700_000_000_001, body, None, 20)

    def _append_columns(self) -> None:
        bodies = ColumnBodies(self._accumulator.format, None, _LARGE_VALUES, None, 0)
        for queue in self._accumulator.map.by_entry:
            future = FutureColumnsMetadata(len(_LARGE_VALUES), self._accumulator.producer.pending)
            self._accumulator.append_columns(queue, bodies, future, 20)

    def _allocate(self) -> None:
        pool = self._accumulator.pool
        taken = [pool.allocate(SLOT_SIZE, 20), pool.allocate(2 * SLOT_SIZE, 20)]
        pool.deallocate(*taken)

    def _wait_for_memory(self) -> None:
        self._accumulator.pool.allocate(self._accumulator.pool.total_memory, 20)

    def _ready(self) -> None:
        self._accumulator.sender.ready(CLUSTER, _now_ms())

    def _drain(self) -> None:
        self._drained += self._accumulator.sender.drain(CLUSTER, NODE, _MAX_REQUEST, _now_ms())

    def _complete(self) -> None:
        drained, self._drained = self._drained, []
        self._accumulator.sender.complete([BatchOutcome(batch, 0) for batch in drained])

    def _reenqueue(self) -> None:
        drained, self._drained = self._drained, []
        for batch in drained:
            self._accumulator.sender.reenqueue(batch, _now_ms())

    def _recover(self) -> None:
        self._drained = []
        self._accumulator.sender.recover()

    def _expire(self) -> None:
        self._accumulator.sender.abort_expired_batches(_now_ms() + 1_000_000)

    def _abort(self) -> None:
        self._accumulator.sender.abort_incomplete_batches(UnknownServerError)

    def _rebuild(self) -> None:
        assert self._accumulator
        slab = self._accumulator.slab
        for lock in slab.locks:
            lock.run(partial(slab.rebuild, lock.number), _PATIENCE_S)

    def _keep_house(self) -> None:
        self._accumulator.pool.reclaim()
        self._accumulator.slab.reap_dead()


def _command(*arguments: str) -> None:
    """Run a command of the command line; it must not end by an exception."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(arguments)


_WHOLE: Final = (
    Session._attach, Session._send, Session._send_large, Session._send_batch, Session._send_to_new_topic,
    Session._poll, Session._flush, Session._metrics, Session._close, Session._status, Session._destroy,
)  # fmt: skip
_PIECES: Final = (
    Session._append, Session._append_columns, Session._allocate, Session._wait_for_memory, Session._ready,
    Session._drain, Session._complete, Session._reenqueue, Session._recover, Session._expire, Session._abort,
    Session._rebuild, Session._keep_house, Session._serve,
)  # fmt: skip
_RAW: Final = frozenset(_PIECES)
OPERATIONS: Final[dict[str, Callable[[Session], None]]] = {
    each.__name__.removeprefix("_"): each for each in (*_WHOLE, *_PIECES)
}
"""All that can be done, by name."""
