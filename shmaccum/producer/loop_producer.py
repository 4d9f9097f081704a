"""A producer whose calls never wait, and the waits of its calls in an event loop.

Where a call of `Producer` would wait for memory, metadata or the start of a sender, the same call of `LoopProducer`
raises a `WouldWait`, and has appended nothing. `LoopSends` does that wait in the loop, then calls again.

One wait is left: for a lock whose holder is stopped (SIGSTOP, a debugger). It blocks the loop for `MIN_TIMEOUT_S` at
most; then other tasks run, and the call is tried again, up to ``max.block.ms``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.loop_pending import LoopPending, LoopPendings
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.state.accumulator_state import AccumulatorState
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.config import ProducerConfig
from shmaccum.errors import LockTimeoutError
from shmaccum.pool.buffer_pool import MemoryWait
from shmaccum.pool.loop_memory import LockHeld, LoopMemory, NoMemory, NoSender, TurnOver, WouldWait
from shmaccum.producer.destinations import Destinations
from shmaccum.producer.metadata import ProducerMetadata
from shmaccum.producer.producer import Producer
from shmaccum.producer.record_path import RecordPath, Sending
from shmaccum.sender.process import WATCH_S
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.loop_wakeup import LoopDoorbell, LoopListener
from shmaccum.shm.wakeup import NO_COMPLETIONS

BURST: Final = 1024
"""Calls of `send` in a row before other tasks run: less than a millisecond. A switch takes as long as 20."""
_LOCK_PAUSE_S: Final = 0.1
"""How long other tasks run between two attempts at a lock that a stopped process holds."""


class NoMetadata(WouldWait):
    """A topic is not known yet, or has too few partitions.

    Attributes:
        topic: its name.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(f"no metadata of topic {topic!r} yet")
        self.topic = topic


class LoopMetadata(ProducerMetadata):
    """Metadata for calls that must not wait.

    Attributes:
        answered: topics that the sender has just answered for: the call that is resumed does not ask again.
    """

    def __init__(self, accumulator: RecordAccumulator, config: ProducerConfig) -> None:
        super().__init__(accumulator, config)
        self.answered: set[str] = set()

    def _ask(self, name: str, deadline_s: float) -> TopicEntry:
        entry = self._map.topic(name) if name in self.answered else None
        if entry is None:
            raise NoMetadata(name)
        self.answered.discard(name)
        return entry


class LoopProducer(Producer):
    """A producer whose `RecordPath.append_prepared` and steps of columns never wait.

    Attributes:
        memory: what its batches are allocated from.
        metadata: of its topics.
    """

    def _make_accumulator(self, state: AccumulatorState, config: ProducerConfig) -> RecordAccumulator:
        self._next_look_s = 0.0
        self.memory = LoopMemory(state.pool)
        return RecordAccumulator(state, config, self._watch, self._check_sender, self.memory.allocate)

    def _make_destinations(self, config: ProducerConfig) -> Destinations:
        self.metadata = LoopMetadata(self._accumulator, config)
        return Destinations(self._accumulator, config, self.metadata)

    def _lock_timeout_s(self, config: ProducerConfig) -> float:
        return MIN_TIMEOUT_S

    def _check_sender(self) -> None:
        """Check, every `WATCH_S` at most, that there is a sender; do not start one.

        Raises:
            NoSender: there is none.
        """
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            if not self._slab.has_sender():
                raise NoSender("there is no sender")
            self._next_look_s = now_s + WATCH_S


class LoopSends:
    """The waits of one producer's calls, in any event loop.

    Calls that need memory form a line in each loop, first come, first served. Only its first one is in the slab's queue
    for memory. While there is a line, later sends of the producer join it, so that none is overtaken. So it is for each
    topic whose metadata sends wait for; sends to other topics pass by.

    Args:
        producer: whose calls.
    """

    def __init__(self, producer: LoopProducer) -> None:
        self._producer = producer
        self._slab = producer._slab
        self._pool = producer._accumulator.state.pool
        self._max_block_s = producer.config.max_block_ms / 1000
        self._lines: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._queued = 0
        """Calls in the lines for memory."""
        self._asking: dict[str, list[asyncio.Lock]] = {}
        """By topic: the line of sends that wait for its metadata, once for each of them."""
        self._passed = 0
        """Sends that have passed by lines since other tasks ran."""
        self._process = object()
        """Another one in a forked child."""
        self._path: Final[RecordPath] = producer._records
        self._path.burst = BURST
        self._slab.on_fork(self)

    def forked(self) -> None:
        """Forget the parent's calls in a forked child."""
        self._lines = {}
        self._queued = 0
        self._asking = {}
        self._process = object()
        self._path.burst = BURST

    def of_loop(self) -> LoopPending:
        """Return what the running event loop waits by."""
        return self._slab.companion(LoopPendings).of_loop()

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait for memory."""
        return self._queued > 0

    # --- calls --------------------------------------------------------------------------------------

    async def send(self, record: Sending) -> FutureRecordMetadata:
        """Send a record; after an error or a cancellation it is not accepted."""
        started = time.monotonic()
        self._producer._guard.check_open()
        wait = None if self._path.burst else TurnOver("other tasks of the event loop are due")
        try:
            self._path.prepare(record)
            self._path.burst = max(0, self._path.burst - 1)
            outcome = self._try(record) if wait is None else wait
            while isinstance(outcome, WouldWait):
                outcome = await self._send_after(outcome, record, started)
            return outcome
        except BaseException as error:
            self._path.refuse_prepared(error, record)
            raise

    async def _send_after(self, wait: WouldWait, record: Sending, started: float) -> FutureRecordMetadata | WouldWait:
        """Try a call again after what it has to wait for."""
        topic = record.topic
        if isinstance(wait, NoMetadata) or (self._asking and isinstance(topic, str) and topic in self._asking):
            return await self._send_for_topic(wait, record, started)
        if isinstance(wait, NoMemory) or self._queued:
            return await self._send_in_line(record, started)
        await self._wait(wait, started)
        return self._try(record)

    async def _send_for_topic(
        self, wait: WouldWait, record: Sending, started: float
    ) -> FutureRecordMetadata | WouldWait:
        """Try a call as the first one of its topic, until that is known and there is memory.

        It returns at any other wait.
        """
        topic: str = wait.topic if isinstance(wait, NoMetadata) else record.topic
        line = self._asking.setdefault(topic, [])
        lock = line[0] if line else asyncio.Lock()
        line.append(lock)
        self._path.burst = 0
        try:
            async with lock:
                while True:
                    outcome = self._try(record)
                    if isinstance(outcome, NoMemory):  # outside, it would join this topic's line again
                        return await self._send_in_line(record, started)
                    if not isinstance(outcome, NoMetadata):
                        return outcome
                    await self.fetch(outcome.topic, started)
        finally:
            line.pop()
            if not line and self._asking.get(topic) is line:
                del self._asking[topic]
            self._end_lines()

    def _end_lines(self) -> None:
        """Let sends pass at full speed again when nothing lines up."""
        if not self._queued and not self._asking:
            self._path.burst = BURST

    async def _send_in_line(self, record: Sending, started: float) -> FutureRecordMetadata | WouldWait:
        """Try a call as the first in line, until it has the memory it needs or would wait for something else."""
        async with self._in_line(started) as turn:
            while True:
                outcome = self._try(record, turn.memory)
                if not isinstance(outcome, NoMemory):
                    return outcome
                await turn.wait(outcome)

    def _try(self, record: Sending, memory: MemoryWait | None = None) -> FutureRecordMetadata | WouldWait:
        """Append a record; return what that would wait for if it would."""
        try:
            with nullcontext() if memory is None else self._producer.memory.turn_of(memory):
                return self._path.append_prepared(record)
        except WouldWait as wait:
            return wait
        except LockTimeoutError as error:
            return LockHeld(error)
        finally:
            self._producer.metadata.answered.clear()

    async def send_batch(self, steps: Iterator[WouldWait | None]) -> None:
        """Append columns by the steps of `ColumnPath.steps`; let other tasks run after each turn."""
        started = time.monotonic()
        wait: WouldWait | None = None
        while True:
            wait = self._step(steps)
            if isinstance(wait, NoMemory):
                async with self._in_line(started) as turn:
                    while wait is None or isinstance(wait, NoMemory):
                        if wait is None:
                            turn.end()
                            await asyncio.sleep(0)
                        else:
                            await turn.wait(wait)
                        wait = self._step(steps, turn.memory)
            if isinstance(wait, _Finished):
                return
            if wait is None:
                await asyncio.sleep(0)
            else:
                await self._wait(wait, started)

    def _step(self, steps: Iterator[WouldWait | None], memory: MemoryWait | None = None) -> WouldWait | None:
        """Return the next wait of columns, `_Finished` after the last one."""
        try:
            with nullcontext() if memory is None else self._producer.memory.turn_of(memory):
                return next(steps)
        except StopIteration:
            return _Finished()
        finally:
            self._producer.metadata.answered.clear()

    # --- waits --------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        started = time.monotonic()
        while True:
            try:
                with self._producer._guard:
                    _, queues = self._producer.metadata.topic(topic, started)
                return set(range(len(queues)))
            except NoMetadata as wait:
                await self.fetch(wait.topic, started)

    async def fetch(self, topic: str, started: float) -> None:
        """Wait until the sender has answered for a topic.

        Raises:
            KafkaError: as `ProducerMetadata.topic`.
        """
        metadata, pending = self._producer.metadata, self.of_loop()
        asking = metadata.asking(topic, started + self._max_block_s)
        try:
            wait = next(asking)
            while True:
                if wait.condition is None:
                    await asyncio.sleep(wait.timeout_s)
                    wait = next(asking)
                else:
                    wait = asking.send(await pending.wait_until(wait.condition, wait.timeout_s))
        except StopIteration:
            metadata.answered.add(topic)  # until the call is tried again, which is before other tasks run

    async def _wait(self, wait: WouldWait, started: float) -> None:
        """Wait for anything but memory."""
        if isinstance(wait, TurnOver):
            self._passed += 1
            if not self._asking or self._passed >= BURST:
                self._passed = 0
                self._end_lines()
                await asyncio.sleep(0)
        elif isinstance(wait, NoMetadata):
            await self.fetch(wait.topic, started)
        elif isinstance(wait, NoSender):
            await self.of_loop().ensure_sender()
        elif isinstance(wait, LockHeld):
            if time.monotonic() - started > self._max_block_s:
                raise wait.error
            await asyncio.sleep(_LOCK_PAUSE_S)

    @asynccontextmanager
    async def _in_line(self, started: float) -> AsyncIterator[_Turn]:
        """Be the first in line inside the block; there is no other call of this loop in the slab's queue then."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for closed in [each for each in self._lines if each.is_closed()]:
                del self._lines[closed]
            line = self._lines[loop] = asyncio.Lock()
        process = self._process
        self._queued += 1
        self._path.burst = 0
        try:
            await self._enter(line, started)
            try:
                with self._slab.companion(LoopDoorbell).of_loop().listening(NO_COMPLETIONS) as listener:
                    turn = _Turn(self, listener, started)
                    try:
                        yield turn
                    finally:
                        turn.end()
            finally:
                line.release()
        finally:
            if process is self._process:
                self._queued -= 1
                self._end_lines()

    async def _enter(self, line: asyncio.Lock, started: float) -> None:
        if not line.locked():
            await line.acquire()
            return
        try:
            async with asyncio.timeout(max(0.0, started + self._max_block_s - time.monotonic())):
                await line.acquire()
        except TimeoutError:
            pool = self._pool
            raise pool.exhausted(pool.poolable_size, self._max_block_s * 1000) from None


class _Finished(WouldWait):
    """No wait: all columns are appended."""


class _Turn:
    """The first in line, which waits in the slab's queue for memory.

    Attributes:
        memory: its place in the queue; None before it needs one.
    """

    def __init__(self, sends: LoopSends, listener: LoopListener, started: float) -> None:
        self.memory: MemoryWait | None = None
        self._sends = sends
        self._process = sends._process
        self._listener = listener
        self._started = started

    async def wait(self, need: NoMemory) -> None:
        """Wait until a wake-up, or for a slice of time; at first, only draw no ticket yet."""
        sends = self._sends
        pool = sends._pool
        count = pool.slots_for(need.size)
        if self.memory is None or self.memory.count != count:
            self.end()
            max_block_ms = max(0.0, self._started + sends._max_block_s - time.monotonic()) * 1000
            self.memory = MemoryWait(need.size, count, max_block_ms, MIN_TIMEOUT_S)
            return  # the next attempt draws the ticket
        await sends.of_loop().ensure_sender()
        self.memory.was_woken = await self._listener.wait(max(0.0, self.memory.slice_s()))

    def end(self) -> None:
        """Give the ticket back, unless it is that of the process that forked this one."""
        memory, self.memory = self.memory, None
        if memory is not None and self._process is self._sends._process:
            self._sends._pool.leave(memory)
