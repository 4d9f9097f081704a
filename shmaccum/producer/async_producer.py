"""The AsyncProducer: a `Producer` for asyncio, in whose event loop nothing blocks.

``await producer.send(...)`` returns when the record is accepted, as `Producer.send` does. The future that it returns
can be awaited for the acknowledgement.

* **Who wakes the loop.** The sender, or the process that frees memory, writes a byte into a FIFO of this process, which
  the loop polls like a socket (`shmaccum.shm.loop_wakeup`). The loop then reads the completion ring itself. There is no
  thread for it; a call that needs no wait appends in the caller's task, without a switch.
* **Memory.** A full slab makes ``await send`` wait in the slab's queue, fair among all processes; the loop runs on.
  While sends wait, later ones line up behind them.
* **Cancellation.** A cancelled ``send`` has not accepted its record, and gives its place in the queue back. A cancelled
  wait for an acknowledgement leaves the record alone: it is accepted, and will be sent. After a cancelled `send_batch`
  the first rows can be accepted. A cancelled `flush` only stops waiting.
* **The sender dies.** Waits go on; the process starts the next sender in a thread of the loop's executor, which takes
  half a second. Only if none can be started, waits end with a SenderError.
* **A fork.** In the child, futures and waits of the parent's loop end. The child's own loop, by ``asyncio.run`` for
  example, can use the producer, as a new process of the slab. The parent's waits go on.
* **The loop is closed** with records pending: they are accepted, and will be sent. The producer can still be closed, or
  used, in another loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from shmaccum import _core
from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.cluster import RecordMetadata
from shmaccum.config import ProducerConfig
from shmaccum.config.settingsfile import read_settings
from shmaccum.errors import ConfigError, IllegalStateError, ShmaccumError
from shmaccum.producer.loop_calls import LoopCalls, LoopProducer, in_loop
from shmaccum.producer.producer import check_timeout, no_pickle
from shmaccum.producer.record_path import RecordPath, Sending
from shmaccum.record.fields import Headers

if TYPE_CHECKING:
    from shmaccum.record.columns import ArrowRows

_CLOSE_LOOK_S: Final = 0.01
_CLOSE_TIMEOUT_S: Final = 1.0
"""How often and how long `close` looks whether sends that waited for memory have ended; they end at once."""


class AsyncProducer(_core.AsyncProducer):
    """A Kafka producer for asyncio, which shares batches, memory and sender with all processes of the host.

    ``async with AsyncProducer(config) as producer: ...``, or `start` and `close`. Any number of tasks of one event loop
    can use it. Other loops, in other threads, get a producer each; they share the process's slab nevertheless.

    Args:
        config: settings by Kafka's names (see docs/configuration.md), or a `ProducerConfig`.

    Raises:
        ConfigError: a setting is unknown, has a wrong value, or contradicts another; or ``transactional.id`` is given.
    """

    _records: RecordPath
    _calls: LoopCalls
    """Both of `_producer`."""

    def __init__(self, config: Mapping[str, object] | ProducerConfig) -> None:
        self.config = config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
        if self.config.transactional_id:
            raise ConfigError(
                f"transactional.id = {self.config.transactional_id!r}: AsyncProducer has no transactions; use a "
                "Producer in a thread for them"
            )
        self._opened: LoopProducer | None = None
        self._starting: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._publishing = threading.Lock()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return a producer with the settings of a file, as `Producer.from_file` reads it.

        Raises:
            ConfigError: the file cannot be read, or is neither of its formats; and all that the constructor raises.
        """
        return cls(read_settings(path))

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def __repr__(self) -> str:
        inner = "not started" if self._opened is None else repr(self._opened)[1:-1].removeprefix("Producer ")
        return f"<AsyncProducer {inner}>"

    async def start(self) -> None:
        """Attach to the slab and make sure that it has a sender, in a thread. A second call does nothing.

        Raises:
            SlabError: the slab cannot be created or used; names the reason.
            SenderError: there was no sender, and none could be started.
        """
        loop = asyncio.get_running_loop()
        async with self._starting.setdefault(loop, asyncio.Lock()):
            try:
                if self._opened is None:
                    await self._start(loop)
            finally:
                self._starting.pop(loop, None)

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        made = Future[LoopProducer]()

        def make() -> LoopProducer:
            made.set_result(LoopProducer(self.config))
            return made.result()

        try:
            opened = await loop.run_in_executor(None, make)
        except BaseException:  # the thread goes on if the task that waits for it is cancelled
            made.add_done_callback(lambda made: made.result().close(0))
            raise
        if not self._publish(opened):
            await loop.run_in_executor(None, opened.close, 0)

    def _publish(self, opened: LoopProducer) -> bool:
        """Use a producer from now on; return False if another loop's thread was faster."""
        with self._publishing:
            if self._opened is not None:
                return False
            self._calls = LoopCalls(opened)
            self._records = opened._records
            self._opened = opened
            return True

    @property
    def _producer(self) -> LoopProducer:
        if self._opened is None:
            raise IllegalStateError("the AsyncProducer is not started: use `async with`, or `await producer.start()`")
        return self._opened

    # --- sending ------------------------------------------------------------------------------------

    async def _send(self, is_serialized: bool, *fields: Any) -> FutureRecordMetadata:
        """Send a record that has to wait, or that Python code has to see, with the arguments of `send`.

        The core cleans up after an error of a serialized one.
        """
        record = Sending(*fields)
        if is_serialized:
            return await self._calls.send_prepared(self._records.serialized(record))
        return await self._calls.send(record)

    _in_loop = staticmethod(in_loop)

    def _run_callbacks(self) -> None:
        self._calls.of_loop().run_callbacks()

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged.

        Args and errors: as of `send`, and why the record failed. A cancellation can come before or after the record is
        accepted.
        """
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def send_batch(self, topic: str, batch: ArrowRows) -> FutureColumnsMetadata:
        """Send all rows of an Arrow batch, vectorised; other tasks run after every few batches.

        Args:
            topic: the topic.
            batch: columns, as `Producer.send_batch` takes them.

        Returns:
            One future for all rows.

        Raises:
            KafkaError: as `Producer.send_batch`, with ``accepted``. After a cancellation, the first rows can be
                accepted, too; then they will be sent.
        """
        producer = self._producer
        producer._guard.check_open()
        path = producer._column_path()
        rows = path.rows_of(batch)
        future = path.future_for(rows)
        try:
            with future.reporting(), producer._guard:
                await self._calls.run(path.sending(topic, rows, future))
        except ShmaccumError as error:
            producer._records.count_refusal(topic, error)
            raise
        return future

    # --- waiting ------------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything at once; wait until all records accepted before are acknowledged or have failed.

        A closed producer has nothing to wait for: the call does nothing then.

        Args:
            timeout: seconds; by default no limit (``delivery.timeout.ms`` bounds the wait).

        Raises:
            IllegalArgumentError: ``timeout`` is negative.
            KafkaTimeoutError: some are pending after ``timeout``; they stay in the slab and will be sent.
            SenderError: there was no sender, and none could be started; the next sender sends them.
        """
        check_timeout(timeout)
        producer = self._producer
        if not producer._attached:
            return
        with producer._guard:
            producer._accumulator.pending.check_process()
            await self._calls.run(producer._accumulator.flushing(timeout))
            await asyncio.sleep(0)  # for callbacks that other threads have left to this loop

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
        """
        producer = self._producer
        with producer._guard:
            _, queues = await self._calls.run(producer._destinations.topic(topic, time.monotonic()))
        return set(range(len(queues)))

    async def close(self, timeout: float | None = None) -> None:
        """Flush and leave the slab. A second call does nothing.

        Sends that wait for memory end with a ProducerClosedError.

        Args:
            timeout: seconds to wait for pending records; 0 for no wait. Records not acknowledged by then stay in the
                slab and will be sent, but their futures here never resolve.

        Raises:
            IllegalArgumentError: ``timeout`` is negative: the producer stays open.
            KafkaTimeoutError: records were not acknowledged within ``timeout`` (other than 0).
            SenderError: there was no sender, and none could be started; the next sender sends them.
        """
        check_timeout(timeout)
        producer = self._opened
        if producer is None or producer._guard.closed:
            return
        producer._guard.closed = True
        accumulator = producer._accumulator
        try:
            accumulator.close()
            accumulator.pending.check_process()
            if timeout != 0:
                await self._calls.run(accumulator.flushing(timeout))
        finally:
            try:
                for _ in range(int(_CLOSE_TIMEOUT_S / _CLOSE_LOOK_S)):
                    if not self._calls.is_waiting:
                        break
                    await asyncio.sleep(_CLOSE_LOOK_S)
            finally:  # a second call would do nothing
                accumulator.pending.leave_loop()
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, producer.close, 0))

    async def stop(self) -> None:
        """Close: aiokafka's name for `close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by Kafka's names, as `Producer.metrics`."""
        return self._producer.metrics()
