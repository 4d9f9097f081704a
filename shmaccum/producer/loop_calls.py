"""The waits of a producer's calls in an event loop.

A call yields what it waits for (`shmaccum.accumulator.append.waits`); `LoopCalls` does that in the loop, and keeps the
calls in order meanwhile.

One wait is left: for a lock whose holder is stopped (SIGSTOP, a debugger). It blocks the loop for `MIN_TIMEOUT_S` at
most; then other tasks run, and `send` tries again, up to ``max.block.ms``.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import copy_context
from functools import partial
from typing import Final, TypeAlias

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.waits import Memory, Pause, Result, Sender, Until, Wait, Waits
from shmaccum.accumulator.buffer_pool import MemoryWait
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import LockTimeoutError, ShmaccumError
from shmaccum.producer.producer import Producer
from shmaccum.producer.record_path import RecordPath, Sending
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.loop_wakeup import run_in_loop

BURST: Final = 1024
"""Calls of `send` in a row before other tasks run: less than a millisecond. A switch takes as long as 20."""
_LOCK_PAUSE_S: Final = 0.1
"""How long other tasks run between two attempts at a lock that a stopped process holds."""
_Key: TypeAlias = tuple[asyncio.AbstractEventLoop, str | None]
"""What a line is for: a loop, and a topic; None for memory."""


def in_loop(callback: DeliveryCallback) -> DeliveryCallback:
    """Return a callback that calls another one in the running event loop, whichever thread reads the completion.

    It runs in the present context, and not in that of the task that reads the completion.
    """
    loop, context = asyncio.get_running_loop(), copy_context()

    def call(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        if loop.is_closed() or asyncio._get_running_loop() is loop:
            context.run(callback, error, metadata)
        else:
            loop.call_soon_threadsafe(callback, error, metadata, context=context)

    return call


class LoopProducer(Producer):
    """A producer whose calls wait in an event loop."""

    def _lock_timeout_s(self) -> float:
        return MIN_TIMEOUT_S


class LoopCalls:
    """The calls of one producer that wait in event loops.

    Calls that need memory form a line in each loop, first come, first served. Only its first one is in the slab's queue
    for memory. While there is a line, later sends of the producer join it, so that none is overtaken. So it is for each
    topic whose metadata sends wait for; sends to other topics pass by. No line spans two loops: an asyncio.Lock that
    one loop's thread releases does not wake another loop, and the call would wait for ever.
    """

    def __init__(self, producer: LoopProducer) -> None:
        self._slab = producer._slab
        self.of_loop: Final = producer._accumulator.pending.of_loop
        """Returns the pending batches of the running event loop."""
        self._pool = producer._accumulator.state.pool
        self._has_sender = producer._watch.has_sender
        self._guard = producer._guard
        self._path: Final[RecordPath] = producer._records
        self._max_block_s = producer.config.max_block_ms / 1000
        self._slab.on_fork(self)
        self.forked()

    def forked(self) -> None:
        """Forget the parent's calls in a forked child."""
        self._lines: dict[_Key, _Line] = {}
        self._for_memory: set[asyncio.AbstractEventLoop] = set()
        """The loops with a line for memory: each `send` asks, and thousands of topics can have a line."""
        self._passed = 0
        """Sends that have passed by lines since other tasks ran."""
        self._path.burst = BURST

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait for memory."""
        return bool(self._for_memory)

    # --- calls --------------------------------------------------------------------------------------

    async def send(self, record: Sending) -> FutureRecordMetadata:
        """Send a record; after an error or a cancellation it is not accepted."""
        self._guard.check_open()
        try:
            self._path.prepare(record)
            if record.callback is not None and record.callback is not record.on_delivery:  # of interceptors
                record.callback = in_loop(record.callback)
            return await self.send_prepared(record)
        except BaseException as error:
            self._path.refuse_prepared(error, record)
            if isinstance(error, asyncio.CancelledError):
                self._path.note_cancelled(record)
            raise

    async def send_prepared(self, record: Sending) -> FutureRecordMetadata:
        """Send a record that interceptors and serializers have seen; the caller cleans up after an error."""
        started = time.monotonic()
        future = self._path.try_append(record)
        while future is None:
            try:
                future = await self._send_in_order(record, started)
            except LockTimeoutError:
                if time.monotonic() - started > self._max_block_s:
                    raise
                await asyncio.sleep(_LOCK_PAUSE_S)
        return future

    async def _send_in_order(self, record: Sending, started: float) -> FutureRecordMetadata:
        """Append a record behind those that wait."""
        call = _Call(self)
        try:
            topic = record.topic
            if self._lines and isinstance(topic, str) and (asyncio.get_running_loop(), topic) in self._lines:
                await call.join(topic)
            elif self.is_waiting:
                await call.join(None, started + self._max_block_s)
            elif not self._path.burst:
                await self._let_others_run()
            self._path.burst = max(0, self._path.burst - 1)
            return await run_in_loop(self._path.appending(record, started), partial(self._wait, call))
        finally:
            call.leave()

    async def _let_others_run(self) -> None:
        self._passed += 1
        if not self._lines or self._passed >= BURST:
            self._passed = 0
            self._end_lines()
            await asyncio.sleep(0)

    def _end_lines(self) -> None:
        """Let sends pass at full speed again when nothing lines up."""
        if not self._lines:
            self._path.burst = BURST

    async def run(self, steps: Waits[Result]) -> Result:
        """Run a call to its end, waiting in the event loop; return its result."""
        call = _Call(self)
        try:
            return await run_in_loop(steps, partial(self._wait, call))
        finally:
            call.leave()

    # --- waits --------------------------------------------------------------------------------------

    async def _wait(self, call: _Call, wait: Wait) -> object:
        match wait:
            case Memory():
                await self._allocate(wait, call)
            case Sender() if not self._has_sender():
                await self.of_loop().ensure_sender()
            case Until(condition, timeout_s, batches, topic):
                if topic is not None:
                    await call.join(topic)
                return await self.of_loop().wait_until(condition, timeout_s, batches)
            case Pause(seconds):
                await asyncio.sleep(seconds)
        return None

    async def _allocate(self, wait: Memory, call: _Call) -> None:
        """Take what is free, or wait in line; the first in line waits in the slab's queue."""
        size, max_block_ms, taken, is_over = wait
        if not call.is_first(None):
            if self._pool.try_allocate(size, taken):
                return
            started = time.monotonic()
            await call.join(None, started + max_block_ms / 1000)
            max_block_ms -= (time.monotonic() - started) * 1000
        memory = MemoryWait(size, self._pool.slots_for(size), max(0.0, max_block_ms), MIN_TIMEOUT_S, is_over)
        await self.of_loop().wait_for_memory(self._pool.waiting(memory, taken))


class _Line:
    """Calls of one loop that wait for the same; the first one has the lock."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.lock = asyncio.Lock()
        self.length = 0


class _Call:
    """The lines in which one call is the first one.

    In a topic's line it can join that for memory, and not the other way round: two calls would wait for each other.
    """

    def __init__(self, calls: LoopCalls) -> None:
        self._calls = calls
        self._first_in: dict[str | None, _Line] = {}
        """By topic; None for memory."""

    def is_first(self, topic: str | None) -> bool:
        """Return whether it is the first one in its loop's line."""
        return topic in self._first_in

    async def join(self, topic: str | None, deadline_s: float | None = None) -> None:
        """Wait in the running loop's line, unless it is its first one.

        Raises BufferExhaustedError: others were before it until the deadline.
        """
        if self.is_first(topic):
            return
        if topic is not None:
            self.leave()
        calls, key = self._calls, (asyncio.get_running_loop(), topic)
        line = calls._lines.setdefault(key, _Line(key))
        line.length += 1
        if topic is None:
            calls._for_memory.add(key[0])
        calls._path.burst = 0  # behind the line, which keeps another loop's thread from setting it
        try:
            async with asyncio.timeout(None if deadline_s is None else max(0.0, deadline_s - time.monotonic())):
                await line.lock.acquire()
            self._first_in[topic] = line
        except TimeoutError:
            pool = calls._pool
            raise pool.exhausted(pool.poolable_size, calls._max_block_s * 1000) from None
        finally:
            if topic not in self._first_in:
                self._left(line)

    def leave(self) -> None:
        """Leave all lines."""
        while self._first_in:
            _, line = self._first_in.popitem()
            line.lock.release()
            self._left(line)

    def _left(self, line: _Line) -> None:
        line.length -= 1
        if not line.length and self._calls._lines.get(line.key) is line:  # not in a forked child, which has other lines
            del self._calls._lines[line.key]
            if line.key[1] is None:
                self._calls._for_memory.discard(line.key[0])
        self._calls._end_lines()
