"""AsyncProducer: nothing blocks its event loop, and every await can be cancelled."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import os
import resource
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import uvloop
from faults import stopped_with
from fixture_types import Settings
from producers import kept_slab, kill_sender, sender_pid, stop_sender, wait_until_gone
from runs import in_threads
from senders import read_values

from shmaccum import AsyncProducer, Producer, ProducerInterceptor, ProducerRecord, errors
from shmaccum._core import Process, Super
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.producer.loop_calls import BURST
from shmaccum.sender.process import SenderWatch

Open = Callable[..., AsyncProducer]

LARGE_VALUE = bytes(15 << 10)
"""Nearly a slot."""
LARGE_ROWS = pa.RecordBatch.from_pydict({"value": [LARGE_VALUE] * 10})
SOON_S = 0.05
"""Long enough for what happens at once."""


@pytest.fixture(scope="module")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the records of `open_small` go."""
    return tmp_path_factory.mktemp("small") / "log"


@pytest.fixture(scope="module")
def kept_small(small_log: Path) -> Iterator[Settings]:
    """Return a function that gives settings of a slab of four slots, and of topics with one partition."""
    small = {"buffer_memory": 64 << 10, "batch_size": 16 << 10, "max_request_size": 64 << 10, "num_partitions": 1}
    with kept_slab(f"async-small-{os.getpid()}", small_log, **small) as settings:
        yield settings


@pytest.fixture
def open_producer(kept: Settings) -> Open:
    """Return a function that makes an AsyncProducer; keywords change its settings."""
    return lambda **changes: AsyncProducer(kept(**changes))


@pytest.fixture
def open_small(kept_small: Settings) -> Open:
    """Return a function that makes an AsyncProducer of a slab of four slots; keywords change its settings."""
    return lambda **changes: AsyncProducer(kept_small(**changes))


def in_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, for a loop of asyncio's and one of uvloop's."""

    @pytest.mark.parametrize("make_loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def run(make_loop: Callable[[], asyncio.AbstractEventLoop] | None, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(asyncio.wait_for(test(**fixtures), 60))

    make_loop, _ = inspect.signature(run).parameters.values()
    run.__signature__ = inspect.Signature([make_loop, *inspect.signature(test).parameters.values()])  # type: ignore[attr-defined]
    run.__doc__ = test.__doc__
    return run


@asynccontextmanager
async def ticking() -> AsyncIterator[Callable[[], int]]:
    """Count the turns of the loop inside the block."""
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(tick())
    yield lambda: turns
    task.cancel()


@asynccontextmanager
async def stopped_sender(producer: AsyncProducer, topic: str) -> AsyncIterator[None]:
    """Stop the sender for the block, when it knows the topic, the slab is empty, and it sleeps."""
    await producer.partitions_for(topic)
    pool = producer._producer._accumulator.state.pool
    await until(lambda: pool.available_memory() == pool.total_memory)
    pid, words = sender_pid(producer._producer), producer._producer._slab.words
    # Where it only begins to sleep, it would go on with a look at the clock from before.
    await until(lambda: words[Super.SENDER_ASLEEP] and process_state(pid) == "S")
    stop_sender(producer._producer, asleep=True)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def full_slab(producer: AsyncProducer, topic: str) -> AsyncIterator[list[Any]]:
    """Fill the slab while its sender is stopped; the sender goes on at the end."""
    async with stopped_sender(producer, topic):
        futures = []
        while producer._producer._accumulator.state.pool.available_memory():
            futures.append(await producer.send(topic, LARGE_VALUE))
        yield futures


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def queued(producer: AsyncProducer) -> int:
    """Return how many waiters are in the slab's queue for memory."""
    return producer._producer._accumulator.state.pool.queued()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def _of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


# --- sending --------------------------------------------------------------------------------------------


@in_both_loops
async def test_acknowledgement_is_awaited(open_producer: Open, topic: str, kept_log: Path) -> None:
    """By one task, and by many at once."""
    async with open_producer() as producer:
        future = await producer.send(topic, b"value", b"key", [("name", b"header")], 1, 1000)
        metadata = await future
        assert metadata == await future == future.get(0)
        assert (metadata.topic_partition, metadata.offset, metadata.timestamp) == ((topic, 1), 0, 1000)
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
        assert (await producer.send_and_wait(topic, b"next", partition=1)).offset == 1
        assert await producer.partitions_for(f"{topic}-2") == {0, 1, 2}

        async def send(number: int) -> int:
            return (await (await producer.send(topic, b"%d" % number, partition=0))).offset

        assert await asyncio.gather(*map(send, range(300))) == list(range(300))
    assert read_values(kept_log, topic, 1) == [b"value", b"next"]
    assert read_values(kept_log, topic) == [b"%d" % number for number in range(300)]


@in_both_loops
async def test_flush_and_the_end_of_the_block_wait_for_what_was_sent_before(open_producer: Open, topic: str) -> None:
    async with open_producer(linger_ms=60_000) as producer:
        futures = [await producer.send(topic, bytes(1000)) for _ in range(50)]
        await producer.flush()
        assert all(future.succeeded() for future in futures)
        async with stopped_sender(producer, topic):
            pending = await producer.send(topic, b"value")
            with pytest.raises(errors.KafkaTimeoutError, match=r"1 batches are not acknowledged after 0\.01 s"):
                await producer.flush(0.01)
            with pytest.raises(errors.IllegalArgumentError):
                await producer.flush(-1)
    assert pending.succeeded()
    with pytest.raises(errors.ProducerClosedError):
        await producer.send(topic, b"late")
    await producer.flush()
    await producer.close()


@in_both_loops
async def test_columns(open_small: Open, topic: str) -> None:
    """More rows than memory: the loop goes on, and a record of the same producer comes behind them."""
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"%04d" % number + bytes(196) for number in range(2000)])})
    async with open_small() as producer:
        async with ticking() as turns:
            future = await producer.send_batch(topic, rows)
            assert turns() > 10
        last = await producer.send(topic, b"last")
        assert (await future).offsets.tolist() == list(range(2000))
        assert (await last).offset == 2000
        assert future.exception() is None
        assert queued(producer) == 0
        with pytest.raises(errors.SerializationError):
            await producer.send_batch(topic, pa.RecordBatch.from_pydict({"wrong": pa.array([1])}))


@in_both_loops
async def test_callbacks_run_in_the_loop(open_producer: Open, topic: str) -> None:
    """With no further call of the producer."""
    async with open_producer() as producer:
        told, done, again = (asyncio.get_running_loop().create_future() for _ in range(3))
        await producer.send(topic, b"value", on_delivery=lambda error, metadata: told.set_result(metadata))
        assert (await told).offset >= 0
        future = await producer.send(topic, b"value")
        for called in (done, again):
            future.add_done_callback(called.set_result)
            assert await called is future


@in_both_loops
async def test_callbacks_run_in_the_context_in_which_they_were_given(open_producer: Open, topic: str) -> None:
    """And not in that of the task that reads the completion: they would log under another request's name."""
    request: ContextVar[int] = ContextVar("request")
    found: list[tuple[int, int]] = []

    async def handle(number: int) -> None:
        request.set(number)

        def note(*_: object) -> None:
            found.append((number, request.get()))

        future = await producer.send(topic, b"value", on_delivery=note)
        future.add_done_callback(note)

    async with open_producer() as producer:
        await asyncio.gather(*map(handle, range(3)))
    assert sorted(found) == [(number, number) for number in range(3) for _ in range(2)]


@in_both_loops
async def test_callbacks_run_in_the_loop_if_another_thread_reads_the_completion(
    open_producer: Open, kept: Settings, topic: str
) -> None:
    """A flush waits for them."""
    ran: list[int] = []

    class Interceptor(ProducerInterceptor):
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            ran.append(threading.get_ident())

    for own in {}, {"interceptor_classes": [Interceptor]}:
        async with open_producer(**own) as producer:
            with Producer(kept()) as other:
                future = await producer.send(topic, b"1", on_delivery=lambda *_: ran.append(threading.get_ident()))
                in_threads(1, lambda _: other.flush(10))  # the loop stands still meanwhile
                assert future.is_done
                assert ran == []
                await producer.flush()
        assert set(ran) == {threading.get_ident()}
        ran.clear()


@in_both_loops
async def test_sends_let_other_tasks_run(open_producer: Open, topic: str) -> None:
    async with open_producer() as producer:
        await producer.send_and_wait(topic, b"first")
        async with ticking() as turns:
            for _ in range(4 * BURST):
                await producer.send(topic, b"value")
            assert turns() >= 2


# --- errors ---------------------------------------------------------------------------------------------


@in_both_loops
async def test_refused_record_raises_at_send(open_producer: Open, topic: str, kept_log: Path) -> None:
    told: list[Any] = []
    async with open_producer(max_request_size=1000) as producer:
        with pytest.raises(errors.RecordTooLargeError):
            await producer.send(topic, bytes(2000), on_delivery=lambda error, _: told.append(type(error)))
        with pytest.raises(errors.SerializationError):
            await producer.send(topic, 17)
        with pytest.raises(
            errors.UnknownTopicOrPartitionError, match=f"Partition 9 of topic {topic} with partition count 3"
        ):
            await producer.send(topic, b"value", partition=9, on_delivery=lambda error, _: told.append(type(error)))
        await producer.send_and_wait(topic, b"value", partition=0)
    assert told == [errors.RecordTooLargeError, errors.UnknownTopicOrPartitionError]
    assert read_values(kept_log, topic) == [b"value"]


@in_both_loops
async def test_failed_record_raises_at_its_future(open_producer: Open, topic: str) -> None:
    async with open_producer(delivery_timeout_ms=300, request_timeout_ms=100, linger_ms=0) as producer:
        async with stopped_sender(producer, topic):
            future = await producer.send(topic, b"late")
            await asyncio.sleep(0.4)
        with pytest.raises(errors.KafkaTimeoutError):
            await future
        assert isinstance(future.exception(), errors.KafkaTimeoutError)
        assert not isinstance(future.exception(), errors.ResultTimeoutError)


@in_both_loops
async def test_serializers_and_interceptors_see_each_record_once(
    open_producer: Open, topic: str, kept_log: Path
) -> None:
    """Also one that waits for its topic's metadata, one that is refused, and one whose outcome nothing awaits."""
    seen: list[Any] = []

    class Interceptor(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(("sent", record.value[:9]))
            return dataclasses.replace(record, topic=topic)

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            seen.append((metadata.topic, type(error)))

    def serialize(value: str) -> bytes:
        seen.append(("serialized", value[:9]))
        return value.encode()

    own = {"interceptor_classes": [Interceptor], "value_serializer": serialize, "max_request_size": 1000}
    async with open_producer(**own) as producer:
        await producer.send("changed", "first", headers=[("name", b"value")], partition=0)
        await until(lambda: len(seen) == 3)
        with pytest.raises(errors.RecordTooLargeError):
            await producer.send("changed", "too large" * 200)
    assert seen == [
        *(("sent", "first"), ("serialized", "first"), (topic, type(None))),
        *(("sent", "too large"), ("serialized", "too large"), (topic, errors.RecordTooLargeError)),
    ]
    assert [value for number in range(3) for value in read_values(kept_log, topic, number)] == [b"first"]


@in_both_loops
async def test_unknown_topic_holds_up_no_other(open_producer: Open, topic: str) -> None:
    """A wait for it can be cancelled; the sender answers the next one."""
    new = f"{topic}-2"
    async with open_producer(max_block_ms=300) as producer:
        async with stopped_sender(producer, topic), ticking() as turns:
            waiting = asyncio.create_task(producer.send(new, b"value"))
            await asyncio.sleep(SOON_S)
            pending = await producer.send(topic, b"second")
            assert not waiting.done()
            with pytest.raises(errors.KafkaTimeoutError, match=f"Topic {new} not present in metadata after 300 ms"):
                await waiting
            assert turns() > 10
            waits: list[Awaitable[Any]] = [producer.send(new, b"value"), producer.partitions_for(new)]
            for wait in waits:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait, SOON_S)
        await pending
    async with open_producer() as producer:
        assert (await producer.send_and_wait(new, b"value")).offset == 0


# --- back-pressure and cancellation ---------------------------------------------------------------------


@in_both_loops
async def test_full_slab_holds_up_sends_in_order_and_not_the_loop(
    open_small: Open, topic: str, small_log: Path
) -> None:
    async with open_small() as producer:
        async with full_slab(producer, topic) as futures, ticking() as turns:
            sends = [asyncio.create_task(producer.send(topic, b"%d" % number + LARGE_VALUE)) for number in range(10)]
            await until(lambda: queued(producer))
            before = turns()
            await asyncio.sleep(SOON_S)
            assert turns() > before + 10
            assert not any(send.done() for send in sends)
            assert queued(producer) == 1  # one for all of them
        await asyncio.gather(*futures, *[await send for send in sends])
        assert queued(producer) == 0
    found = [int(value[:1]) for value in read_values(small_log, topic)[-10:] if value]
    assert found == list(range(10))


@in_both_loops
async def test_memory_that_does_not_come_in_time(open_small: Open, topic: str) -> None:
    """Columns say what is accepted."""
    told: list[Any] = []
    async with open_small(max_block_ms=200) as producer:
        async with stopped_sender(producer, topic):
            with pytest.raises(errors.BufferExhaustedError) as caught:
                await producer.send_batch(topic, LARGE_ROWS)
            sends = [
                producer.send(topic, LARGE_VALUE, on_delivery=lambda error, _: told.append(type(error)))
                for _ in range(3)
            ]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert queued(producer) == 0
        accepted = caught.value.accepted
        assert accepted is not None
        assert accepted.rows.tolist() == [0, 1, 2, 3]
        assert (await accepted).offsets.tolist() == [0, 1, 2, 3] + [-1] * 6
    assert [type(each) for each in outcomes] == told == [errors.BufferExhaustedError] * 3


@in_both_loops
async def test_cancelled_send_gives_its_place_back(open_small: Open, topic: str, small_log: Path) -> None:
    """The first in line as well as one behind it; others follow, and the cancelled records are never sent.

    Columns, too, give their place back.
    """
    async with open_small() as producer:
        async with full_slab(producer, topic):
            values = [b"cancelled first", b"cancelled second", b"kept"]
            sends = [asyncio.create_task(producer.send(topic, value + LARGE_VALUE)) for value in values]
            await until(lambda: queued(producer))
            for send in sends[:2]:
                send.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await send
            await until(lambda: queued(producer))
            sends[2].cancel()
            with pytest.raises(asyncio.CancelledError):
                await sends[2]
            assert queued(producer) == 0
            columns = asyncio.create_task(producer.send_batch(topic, LARGE_ROWS))
            await until(lambda: queued(producer))
            columns.cancel()
            with pytest.raises(asyncio.CancelledError):
                await columns
            assert queued(producer) == 0
            kept = asyncio.create_task(producer.send(topic, b"kept" + LARGE_VALUE))
            await until(lambda: queued(producer))
        await (await kept)
    sent = [value for value in read_values(small_log, topic) if value != LARGE_VALUE]
    assert sent == [b"kept" + LARGE_VALUE]


@in_both_loops
async def test_interceptors_hear_of_a_cancelled_send(open_small: Open, topic: str) -> None:
    """Else one that keeps something for each record, as for a span, would keep it for ever."""
    ended: list[Any] = []

    class Interceptor(ProducerInterceptor):
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            ended.append((metadata.topic, str(error)))

    async with open_small(interceptor_classes=[Interceptor]) as producer, full_slab(producer, topic) as futures:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(topic, LARGE_VALUE), SOON_S)
        assert ended == [(topic, "the call of send was cancelled")]
    assert ended[1:] == [(topic, "None")] * len(futures)


@in_both_loops
async def test_cancelled_acknowledgement_does_not_recall_the_record(
    open_producer: Open, topic: str, kept_log: Path
) -> None:
    async with open_producer() as producer:
        async with stopped_sender(producer, topic):
            future = await producer.send(topic, b"first", partition=0)
            second = producer.send_and_wait(topic, b"second", partition=0)
            waits: list[Awaitable[Any]] = [future, producer.flush(), second]
            for wait in waits:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait, SOON_S)
            assert not future.cancel()
            assert not future.cancelled()
            assert future.running()
        assert (await future).offset == 0
    assert read_values(kept_log, topic) == [b"first", b"second"]


@in_both_loops
async def test_close_ends_what_waits(open_small: Open, topic: str) -> None:
    """Columns that it cuts short say what is accepted."""
    producer = open_small()
    await producer.start()
    async with stopped_sender(producer, topic):
        acknowledgement = asyncio.ensure_future(_of(await producer.send(topic, LARGE_VALUE)))
        columns = asyncio.create_task(producer.send_batch(topic, LARGE_ROWS))
        await until(lambda: queued(producer))
        send = asyncio.create_task(producer.send(topic, LARGE_VALUE))
        await asyncio.sleep(SOON_S)
        await producer.close(timeout=0)
        with pytest.raises(errors.ProducerClosedError):
            await send
        with pytest.raises(errors.IllegalStateError):
            await acknowledgement
        with pytest.raises(errors.ProducerClosedError) as caught:
            await columns
        assert caught.value.accepted is not None
        assert caught.value.accepted.rows.tolist() == [0, 1, 2]


@in_both_loops
async def test_a_cancelled_close_leaves_the_slab(open_small: Open, topic: str) -> None:
    """While a send waits for memory. Before, the process stayed a user, and no later `close` did anything."""
    producer = open_small()
    await producer.start()
    inner = producer._producer
    async with full_slab(producer, topic):
        send = asyncio.create_task(producer.send(topic, LARGE_VALUE))
        await until(lambda: queued(producer))
        closing = asyncio.create_task(producer.close(timeout=0))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(errors.ProducerClosedError):
            await send
        await until(lambda: not inner._attached)


def test_cancelled_start_leaves_nothing(settings: Settings, slab_name: str) -> None:
    """The end of the loop waits for the thread that starts the producer."""

    async def main() -> None:
        starting = asyncio.create_task(AsyncProducer(settings()).start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    wait_until_gone(slab_name)


def test_loops_that_start_it_at_once_have_one_producer(open_producer: Open) -> None:
    producer = open_producer()
    at_once = threading.Barrier(3)
    used: list[object] = []

    async def start() -> None:
        at_once.wait()
        await producer.start()
        used.append(producer._producer)

    in_threads(3, lambda _: asyncio.run(start()))
    assert len(used) == 3
    assert len(set(map(id, used))) == 1
    asyncio.run(producer.close())


def test_lock_of_a_stopped_process_holds_up_the_loop_for_a_second_only(open_producer: Open, topic: str) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with open_producer(max_block_ms=1500) as producer:
            await producer.send_and_wait(topic, b"first", partition=0)
            queue = producer._producer._accumulator.state.map.topic(topic).queues[0]  # type: ignore[union-attr]
            with stopped_with(queue.lock) as pid:
                async with ticking() as turns:
                    sending = producer.send(topic, b"2", partition=0, on_delivery=lambda error, _: told.append(error))
                    with pytest.raises(errors.LockTimeoutError, match=f"process {pid}") as caught:
                        await sending
                    assert turns() > 1
            assert told == [caught.value]
            assert (await producer.send_and_wait(topic, b"third", partition=0)).offset == 1

    asyncio.run(main())


# --- loops, threads and processes -----------------------------------------------------------------------


def test_loop_is_closed_with_records_pending(open_producer: Open, topic: str, kept_log: Path) -> None:
    """They are sent; another loop goes on with the producer."""
    producer = open_producer(linger_ms=200)

    async def first() -> Any:
        await producer.start()
        future = await producer.send(topic, b"first", partition=0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        return future

    future = asyncio.run(first())
    gc.collect()

    async def second() -> None:
        assert (await future).offset == 0
        assert (await producer.send_and_wait(topic, b"second", partition=0)).offset == 1
        await producer.close()

    asyncio.run(second())
    assert read_values(kept_log, topic) == [b"first", b"second"]


def test_two_loops_in_two_threads(open_producer: Open, topic: str, kept_log: Path) -> None:
    """Each reads the completions of both: neither waits for a slice of its own.

    Sends that line up in one loop for a topic's metadata are not held up by those of another.
    """
    producer, count = open_producer(linger_ms=1), 100
    asyncio.run(producer.start())
    barrier = threading.Barrier(2)

    async def main(partition: int) -> None:
        for attempt in range(20):
            barrier.wait(10)
            async with asyncio.timeout(5):
                await asyncio.gather(*[producer.send(f"{topic}-{attempt}", b"value") for _ in range(3)])
        for number in range(count):
            assert (await producer.send_and_wait(topic, b"%d" % number, partition=partition)).offset == number

    in_threads(2, lambda partition: asyncio.run(main(partition)))
    asyncio.run(producer.close())
    for partition in range(2):
        assert read_values(kept_log, topic, partition) == [b"%d" % number for number in range(count)]


@in_both_loops
async def test_completions_that_a_thread_reads_resolve_in_the_loop(
    kept: Settings, open_producer: Open, topic: str
) -> None:
    """A future of a synchronous producer, too, can be awaited."""
    async with open_producer() as producer:
        with Producer(kept()) as synchronous:
            awaited = asyncio.ensure_future(_of(synchronous.send(topic, b"value")))
            await asyncio.to_thread(synchronous.flush)
            assert (await awaited).offset >= 0
            mine = await producer.send(topic, b"value")
            await asyncio.to_thread(synchronous.flush)
            assert mine.done()
            assert (await mine).offset >= 0


def test_a_loop_that_is_closed_in_a_wait_delays_no_other(open_producer: Open, topic: str) -> None:
    """Before, its listener stayed, and the doorbell was not pressed again: each wait took a slice."""
    producer = open_producer(linger_ms=50)

    async def wait_in_vain() -> None:
        await producer.start()
        await producer.partitions_for(topic)
        await asyncio.wait({asyncio.ensure_future(await producer.send(topic, b"first"))}, timeout=0)

    async def wait() -> None:
        await producer.flush()
        pending = producer._producer._slab.companion(PendingBatches)
        pending.of_loop()._check = lambda: None  # type: ignore[method-assign]
        for _ in range(5):
            await asyncio.wait_for(producer.send_and_wait(topic, b"value"), 5)
        await producer.close()

    asyncio.run(wait_in_vain())
    asyncio.run(wait())


def test_fork_in_a_running_loop(open_small: Open, topic: str, small_log: Path) -> None:
    """The child is a process of its own; the parent's waits, loop and place in the queue stay as they are."""

    async def use_inherited(producer: AsyncProducer, parents: Any) -> None:
        with pytest.raises(errors.DeadOwnerError):
            await parents
        gc.collect()
        assert (await producer.send_and_wait(topic, b"child")).offset >= 0
        await producer.close()

    async def main() -> None:
        async with open_small() as producer:
            async with full_slab(producer, topic) as futures:
                send = asyncio.create_task(producer.send(topic, b"parent" + LARGE_VALUE))
                acknowledgement = asyncio.ensure_future(futures[-1])
                await until(lambda: queued(producer))
                child = run_child(use_inherited(producer, futures[-1]))
                await asyncio.sleep(SOON_S)
                assert queued(producer) in (1, 2)  # the child may wait, too
                assert not send.done()
            await acknowledgement
            await (await send)
            assert await asyncio.to_thread(exit_code, child) == 0

    asyncio.run(asyncio.wait_for(main(), 60))
    assert {b"parent", b"child"} < {value[:6] for value in read_values(small_log, topic) if value}


def run_child(work: Coroutine[Any, Any, None]) -> int:
    """Run a coroutine in a forked child; return its process id."""
    if child := os.fork():
        work.close()
        return child
    status = 1
    try:
        asyncio.run(asyncio.wait_for(work, 60))
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@in_both_loops
async def test_sender_is_killed_while_a_record_is_awaited(open_producer: Open, topic: str, kept_log: Path) -> None:
    async with open_producer() as producer:
        await producer.send_and_wait(topic, b"first", partition=0)
        stop_sender(producer._producer)
        awaited = asyncio.ensure_future(_of(await producer.send(topic, b"second", partition=0)))
        await asyncio.sleep(0)
        async with ticking() as turns:
            kill_sender(producer._producer)
            before = turns()
            assert (await awaited).offset == 1
            assert turns() > before + 10  # while the next sender starts
        kill_sender(producer._producer)
        assert (await producer.send_and_wait(topic, b"third", partition=0)).offset == 2
    assert read_values(kept_log, topic) == [b"first", b"second", b"third"]


@in_both_loops
async def test_no_sender_can_be_started(open_producer: Open, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise errors.SenderError("no sender today")

    async with open_producer(linger_ms=60_000) as producer:
        await producer.send(topic, b"first", partition=0)
        await producer.flush()
        future = await producer.send(topic, b"second", partition=0)
        with monkeypatch.context() as patch:
            patch.setattr(SenderWatch, "__call__", fail)
            kill_sender(producer._producer)
            for wait in (future, producer.flush(), producer.send(topic, bytes(16 << 10), partition=0)):
                with pytest.raises(errors.SenderError, match="no sender today"):
                    await wait
        await producer.flush()
        assert (await future).offset == 1


def test_a_producer_that_cannot_be_used(settings: Settings) -> None:
    assert inspect.iscoroutinefunction(AsyncProducer.send), "a mock of the class awaits what has to be awaited"
    with pytest.raises(errors.ConfigError, match=r"transactional\.id = 'orders': AsyncProducer has no transactions"):
        AsyncProducer({"bootstrap.servers": "localhost:1", "transactional.id": "orders"})
    producer = AsyncProducer(settings())
    assert repr(producer) == "<AsyncProducer not started>"
    with pytest.raises(errors.IllegalStateError, match="not started"):
        asyncio.run(_of(producer.send("t", b"value")))
    asyncio.run(producer.close())


# --- what a wait leaves ---------------------------------------------------------------------------------


@in_both_loops
async def test_idle_loop_is_not_pressed_and_leaves_no_descriptor(open_producer: Open, topic: str) -> None:
    def fifos() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
        return sum("shmaccum" in link and ".wakeup." in link for link in links)

    before = fifos()
    async with open_producer() as producer:
        slab = producer._producer._slab
        await producer.send_and_wait(topic, b"value")
        asleep = slab.geometry.process(slab.me) + Process.LOOP_ASLEEP
        assert fifos() == before + 2  # the sender's, and ours
        await until(lambda: not slab.words[asleep])
        await until(lambda: fifos() == before + 1)
        for _ in range(3):  # it comes back
            await producer.send_and_wait(topic, b"value")
    assert fifos() == before


@in_both_loops
async def test_records_are_accepted_and_awaited_without_a_descriptor(open_producer: Open, topic: str) -> None:
    """Before, `send` with a callback raised after the record was accepted: a program that tried again doubled it."""
    reports: list[object] = []
    async with open_producer() as producer:
        await producer.partitions_for(topic)
        producer._producer._accumulator.pending.leave_loop()
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
        try:
            await (await producer.send(topic, b"value", on_delivery=lambda error, _: reports.append(error)))
            await producer.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        assert reports == [None]


@in_both_loops
async def test_awaited_records_need_no_slice(open_producer: Open, topic: str) -> None:
    """The doorbell wakes the loop: without the slices of waiting, every record is acknowledged all the same."""
    async with open_producer(linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"first")
        pending = producer._producer._slab.companion(PendingBatches)
        of_loop = pending.of_loop()
        of_loop._check = lambda: None  # type: ignore[method-assign]
        for _ in range(50):
            await producer.send_and_wait(topic, b"value")
        assert pending.of_loop() is of_loop
