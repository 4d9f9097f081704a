"""The waits of a producer's calls in an event loop.

A call yields what it waits for (`shmaccum.accumulator.append.waits`); `LoopCalls` does that in the loop, and keeps the
calls in order meanwhile.

One wait is left: for a lock whose holder is stopped (SIGSTOP, a debugger). It blocks the loop for `MIN_TIMEOUT_S` at
most; then other tasks run, and `send` tries again, up to ``max.block.ms``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.waits import Memory, Pause, Result, Sender, Until, Wait, Waits
from shmaccum.accumulator.buffer_pool import MemoryWait
from shmaccum.errors import LockTimeoutError
from shmaccum.producer.producer import Producer
from shmaccum.producer.record_path import RecordPath, Sending
from shmaccum.shm.locks import MIN_TIMEOUT_S

BURST: Final = 1024
"""Calls of `send` in a row before other tasks run: less than a millisecond. A switch takes as long as 20."""
_LOCK_PAUSE_S: Final = 0.1
"""How long other tasks run between two attempts at a lock that a stopped process holds."""
_Topic = tuple[asyncio.AbstractEventLoop, str]


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
        self._lines: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        """For memory."""
        self._queued = 0
        """Calls in these lines."""
        self._asking: dict[_Topic, list[asyncio.Lock]] = {}
        """By loop and topic: the line of sends that wait for its metadata, once for each of them."""
        self._passed = 0
        """Sends that have passed by lines since other tasks ran."""
        self._process = object()
        """Another one in a forked child."""
        self._path.burst = BURST

    @property
    def is_waiting(self) -> bool:
        """Whether calls wait for memory."""
        return self._queued > 0

    # --- calls --------------------------------------------------------------------------------------

    async def send(self, record: Sending) -> FutureRecordMetadata:
        """Send a record; after an error or a cancellation it is not accepted."""
        self._guard.check_open()
        try:
            self._path.prepare(record)
            return await self.send_prepared(record)
        except BaseException as error:
            self._path.refuse_prepared(error, record)
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
            if self._asking and isinstance(topic, str) and (asyncio.get_running_loop(), topic) in self._asking:
                await call.join_topic(topic)
            elif self._queued:
                await call.join(started + self._max_block_s)
            elif not self._path.burst:
                await self._let_others_run()
            self._path.burst = max(0, self._path.burst - 1)
            return await self._run(self._path.appending(record, started), call)
        finally:
            call.leave()

    async def _let_others_run(self) -> None:
        self._passed += 1
        if not self._asking or self._passed >= BURST:
            self._passed = 0
            self._end_lines()
            await asyncio.sleep(0)

    def _end_lines(self) -> None:
        """Let sends pass at full speed again when nothing lines up."""
        if not self._queued and not self._asking:
            self._path.burst = BURST

    async def run(self, steps: Waits[Result]) -> Result:
        """Run a call to its end, waiting in the event loop; return its result."""
        call = _Call(self)
        try:
            return await self._run(steps, call)
        finally:
            call.leave()

    async def _run(self, steps: Waits[Result], call: _Call) -> Result:
        answer: object = None
        try:
            while True:
                try:
                    wait = steps.send(answer)
                except StopIteration as end:
                    result: Result = end.value
                    return result
                answer = await self._wait(wait, call)
        finally:
            steps.close()

    # --- waits --------------------------------------------------------------------------------------

    async def _wait(self, wait: Wait, call: _Call) -> object:
        match wait:
            case Memory():
                await self._allocate(wait, call)
            case Sender() if not self._has_sender():
                await self.of_loop().ensure_sender()
            case Until(condition, timeout_s, batches, topic):
                if topic is not None:
                    await call.join_topic(topic)
                return await self.of_loop().wait_until(condition, timeout_s, batches)
            case Pause(seconds):
                await asyncio.sleep(seconds)
        return None

    async def _allocate(self, wait: Memory, call: _Call) -> None:
        """Take what is free, or wait in line; the first in line waits in the slab's queue."""
        size, max_block_ms, taken, most = wait
        if call.line is None:  # it is not the first one
            if self._pool.try_allocate(size, taken, most=most):
                return
            started = time.monotonic()
            await call.join(started + max_block_ms / 1000)
            max_block_ms -= (time.monotonic() - started) * 1000
        memory = MemoryWait(size, self._pool.slots_for(size), max(0.0, max_block_ms), MIN_TIMEOUT_S)
        await self.of_loop().wait_for_memory(self._pool.waiting(memory, taken, most=most))

    def line(self) -> asyncio.Lock:
        """Return the running loop's line for memory: who holds the lock is its first."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for closed in [each for each in self._lines if each.is_closed()]:
                del self._lines[closed]
            line = self._lines[loop] = asyncio.Lock()
        return line


class _Call:
    """The lines that one call stands in. It holds their locks when it is the first one.

    In a topic's line it can join that for memory, and not the other way round: two calls would wait for each other.
    """

    def __init__(self, calls: LoopCalls) -> None:
        self._calls = calls
        self._process = calls._process
        self.line: asyncio.Lock | None = None
        """The line for memory, while this call is the first one in it."""
        self._topic: _Topic | None = None
        self._topic_line: list[asyncio.Lock] = []

    async def join(self, deadline_s: float) -> None:
        """Wait in the line for memory. Raises BufferExhaustedError: others were before it until the deadline."""
        calls = self._calls
        calls._queued += 1
        calls._path.burst = 0
        line = calls.line()
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                await line.acquire()
            self.line = line
        except TimeoutError:
            pool = calls._pool
            raise pool.exhausted(pool.poolable_size, calls._max_block_s * 1000) from None
        finally:
            if self.line is None:
                self._leave_queue()

    async def join_topic(self, name: str) -> None:
        """Wait in the running loop's line of a topic, unless it is its first one."""
        topic = (asyncio.get_running_loop(), name)
        if topic == self._topic:
            return
        self.leave()
        calls = self._calls
        self._topic_line = line = calls._asking.setdefault(topic, [])
        self._topic = topic
        calls._path.burst = 0
        lock = line[0] if line else asyncio.Lock()
        line.append(lock)
        try:
            await lock.acquire()
        except BaseException:
            self._leave_topic()
            raise

    def leave(self) -> None:
        """Leave all lines."""
        if self.line is not None:
            self.line.release()
            self.line = None
            self._leave_queue()
        if self._topic is not None:
            self._topic_line[0].release()
            self._leave_topic()

    def _leave_queue(self) -> None:
        calls = self._calls
        if self._process is calls._process:
            calls._queued -= 1
            calls._end_lines()

    def _leave_topic(self) -> None:
        asking, topic, line = self._calls._asking, self._topic, self._topic_line
        self._topic = None
        line.pop()
        if topic is not None and not line and asking.get(topic) is line:
            del asking[topic]
        self._calls._end_lines()
