"""AsyncProducer: nothing blocks its event loop, and every await can be cancelled."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import uvloop
from faults import stopped_with
from fixture_types import Settings
from producers import kill_sender, sender_pid, stop_sender, wait_until_gone
from senders import read_topic, read_values

import shmaccum
from shmaccum import AsyncProducer, Producer, ProducerInterceptor, ProducerRecord
from shmaccum._core import Process
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.errors import (
    BufferExhaustedError,
    ConfigError,
    DeadOwnerError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    LockTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    ResultTimeoutError,
    SenderError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from shmaccum.producer.loop_calls import BURST
from shmaccum.sender.process import SenderWatch

Run = Callable[[Coroutine[Any, Any, Any]], Any]

SMALL = {"buffer_memory": 64 << 10, "batch_size": 16 << 10, "max_request_size": 64 << 10, "num_partitions": 1}
"""A slab of four slots."""
LARGE_VALUE = bytes(15 << 10)
"""Nearly a slot."""
SOON_S = 0.05
"""Long enough for what happens at once."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Return a function that runs a coroutine in a loop of either kind."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda coroutine: runner.run(asyncio.wait_for(coroutine, 60))


@pytest.fixture
def open_producer(settings: Settings, slab_name: str) -> Iterator[Callable[..., AsyncProducer]]:
    """Return a function that makes an AsyncProducer of the test's slab, which must be removed at the end."""
    yield lambda **changes: AsyncProducer(settings(**changes))
    wait_until_gone(slab_name)


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
async def full_slab(producer: AsyncProducer) -> AsyncIterator[list[Any]]:
    """Fill the slab while its sender is stopped; the sender goes on at the end."""
    await (await producer.send("t", b"first"))
    inner = producer._producer
    stop_sender(inner)
    futures = []
    try:
        while inner._accumulator.state.pool.available_memory():
            futures.append(await producer.send("t", LARGE_VALUE))
        yield futures
    finally:
        resume_sender(producer)


def resume_sender(producer: AsyncProducer) -> None:
    os.kill(sender_pid(producer._producer), signal.SIGCONT)


def queued(producer: AsyncProducer) -> int:
    """Return how many waiters are in the slab's queue for memory."""
    return producer._producer._accumulator.state.pool.queued()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# --- sending --------------------------------------------------------------------------------------------


def test_acknowledgement_is_awaited(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    async def main() -> None:
        async with open_producer() as producer:
            future = await producer.send("t", b"value", b"key", [("name", b"header")], 1, 1000)
            metadata = await future
            assert metadata == await future == future.get(0)
            assert (metadata.topic_partition, metadata.offset, metadata.timestamp) == (("t", 1), 0, 1000)
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
            assert (await producer.send_and_wait("t", b"next", partition=1)).offset == 1
            assert await producer.partitions_for("another") == {0, 1, 2}

    run(main())
    assert read_values(log_dir, "t", 1) == [b"value", b"next"]


def test_many_tasks_await_their_records(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    async def main() -> None:
        async with open_producer() as producer:

            async def send(number: int) -> int:
                return (await (await producer.send("t", b"%d" % number, partition=0))).offset

            offsets = await asyncio.gather(*map(send, range(500)))
            assert offsets == list(range(500))

    run(main())
    assert read_values(log_dir, "t") == [b"%d" % number for number in range(500)]


def test_leaving_the_block_flushes(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    async def main() -> None:
        async with open_producer(linger_ms=60_000) as producer:
            futures = [await producer.send("t", b"value") for _ in range(10)]
            assert not any(future.done() for future in futures)
        assert all(future.succeeded() for future in futures)
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"late")
        await producer.flush()
        await producer.close()

    run(main())


def test_flush_waits_for_what_was_sent_before(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        async with open_producer(linger_ms=60_000) as producer:
            futures = [await producer.send("t", bytes(1000)) for _ in range(200)]
            await producer.flush()
            assert all(future.succeeded() for future in futures)
            stop_sender(producer._producer)
            pending = await producer.send("t", b"value")
            with pytest.raises(KafkaTimeoutError, match=r"1 batches are not acknowledged after 0\.01 s"):
                await producer.flush(0.01)
            with pytest.raises(IllegalArgumentError):
                await producer.flush(-1)
            resume_sender(producer)
            await producer.flush()
            assert pending.succeeded()

    run(main())


def test_columns(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    """More rows than memory: the loop goes on, and a record of the same producer comes behind them."""
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"%04d" % number + bytes(196) for number in range(5000)])})

    async def main() -> None:
        async with open_producer(**SMALL) as producer:
            async with ticking() as turns:
                sending = asyncio.create_task(producer.send_batch("t", rows))
                future = await sending
                assert turns() > 10
            last = await producer.send("t", b"last")
            assert (await future).offsets.tolist() == list(range(5000))
            assert (await last).offset == 5000
            assert future.exception() is None
            assert queued(producer) == 0
            with pytest.raises(SerializationError):
                await producer.send_batch("t", pa.RecordBatch.from_pydict({"wrong": pa.array([1])}))

    run(main())


def test_callbacks_run_in_the_loop(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    """With no further call of the producer."""

    async def main() -> None:
        async with open_producer() as producer:
            loop = asyncio.get_running_loop()
            told: asyncio.Future[Any] = loop.create_future()
            await producer.send("t", b"value", on_delivery=lambda error, metadata: told.set_result(metadata))
            assert (await told).offset >= 0
            done: asyncio.Future[Any] = loop.create_future()
            future = await producer.send("t", b"value")
            future.add_done_callback(done.set_result)
            assert await done is future
            again: asyncio.Future[Any] = loop.create_future()
            future.add_done_callback(again.set_result)
            assert await again is future

    run(main())


def test_sends_let_other_tasks_run(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        async with open_producer() as producer:
            await producer.send_and_wait("t", b"first")
            async with ticking() as turns:
                for _ in range(4 * BURST):
                    await producer.send("t", b"value")
                assert turns() >= 2

    run(main())


# --- errors ---------------------------------------------------------------------------------------------


def test_refused_record_raises_at_send(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    told: list[tuple[Any, Any]] = []

    async def main() -> None:
        async with open_producer(max_request_size=1000) as producer:
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", bytes(2000), on_delivery=lambda *outcome: told.append(outcome))
            with pytest.raises(SerializationError):
                await producer.send("t", 17)
            with pytest.raises(UnknownTopicOrPartitionError, match="Partition 9 of topic t with partition count 3"):
                await producer.send("t", b"value", partition=9, on_delivery=lambda *outcome: told.append(outcome))
            await producer.send_and_wait("t", b"value", partition=0)

    run(main())
    assert [type(error) for error, _ in told] == [RecordTooLargeError, UnknownTopicOrPartitionError]
    assert read_values(log_dir, "t") == [b"value"]


def test_failed_record_raises_at_its_future(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        async with open_producer(delivery_timeout_ms=300, request_timeout_ms=100, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            stop_sender(producer._producer)
            future = await producer.send("t", b"late")
            await asyncio.sleep(0.5)
            resume_sender(producer)
            with pytest.raises(KafkaTimeoutError):
                await future
            assert isinstance(future.exception(), KafkaTimeoutError)
            assert not isinstance(future.exception(), ResultTimeoutError)

    run(main())


def test_interceptors_see_each_record_once(
    run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path
) -> None:
    """Also a record that has to wait for its topic's metadata."""
    seen: list[Any] = []

    class Interceptor(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record.value)
            return dataclasses.replace(record, topic="other")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            seen.append(metadata.topic)

    async def main() -> None:
        async with open_producer(interceptor_classes=[Interceptor]) as producer:
            await producer.send_and_wait("t", b"value")

    run(main())
    assert seen == [b"value", "other"]


def test_serializers_see_each_record_once(run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path) -> None:
    """Also one that waits for its topic's metadata, and one that is refused."""
    seen: list[str] = []

    def serialize(value: str) -> bytes:
        seen.append(value)
        return value.encode()

    async def main() -> None:
        async with open_producer(value_serializer=serialize, max_request_size=1000) as producer:
            await producer.send_and_wait("t", "first", headers=[("name", b"value")], partition=0)
            await producer.send("t", "second", partition=0)
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", "x" * 2000)

    run(main())
    assert seen == ["first", "second", "x" * 2000]
    assert read_values(log_dir, "t") == [b"first", b"second"]


def test_interceptors_see_acknowledgements_that_nothing_awaits(
    run: Run, open_producer: Callable[..., AsyncProducer]
) -> None:
    seen: list[Any] = []

    class Interceptor(ProducerInterceptor):
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            seen.append(metadata.topic)

    async def main() -> None:
        async with open_producer(interceptor_classes=[Interceptor]) as producer:
            await producer.send("t", b"value")
            while not seen:
                await asyncio.sleep(0.01)

    run(main())
    assert seen == ["t"]


def test_unknown_topic_holds_up_no_other(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        async with open_producer(max_block_ms=300) as producer:
            await producer.send_and_wait("t", b"first")
            stop_sender(producer._producer)
            async with ticking() as turns:
                waiting = asyncio.create_task(producer.send("unknown", b"value"))
                await asyncio.sleep(SOON_S)
                pending = await producer.send("t", b"second")
                assert not waiting.done()
                with pytest.raises(KafkaTimeoutError, match="Topic unknown not present in metadata after 300 ms"):
                    await waiting
                assert turns() > 10
            resume_sender(producer)
            await pending

    run(main())


def test_not_started(open_producer: Callable[..., AsyncProducer], run: Run) -> None:
    async def main() -> None:
        producer = open_producer()
        assert repr(producer) == "<AsyncProducer not started>"
        with pytest.raises(IllegalStateError, match="not started"):
            await producer.send("t", b"value")
        await producer.close()

    run(main())


# --- back-pressure and cancellation ---------------------------------------------------------------------


def test_full_slab_holds_up_sends_in_order_and_not_the_loop(
    run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path
) -> None:
    async def main() -> None:
        async with open_producer(**SMALL) as producer:
            async with full_slab(producer) as futures, ticking() as turns:
                sends = [asyncio.create_task(producer.send("t", b"%d" % number + LARGE_VALUE)) for number in range(10)]
                await until(lambda: queued(producer))
                before = turns()
                await asyncio.sleep(SOON_S)
                assert turns() > before + 10
                assert not any(send.done() for send in sends)
                assert queued(producer) == 1  # one for all of them
            await asyncio.gather(*futures, *[await send for send in sends])
            assert queued(producer) == 0

    run(main())
    found = [int(value[:1]) for value in read_values(log_dir, "t")[-10:] if value]
    assert found == list(range(10))


def test_memory_that_does_not_come_in_time(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with open_producer(**SMALL, max_block_ms=200) as producer, full_slab(producer):
            sends = [
                asyncio.create_task(producer.send("t", LARGE_VALUE, on_delivery=lambda *each: told.append(each)))
                for _ in range(3)
            ]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in outcomes] == [BufferExhaustedError] * 3
            assert queued(producer) == 0

    run(main())
    assert [type(error) for error, _ in told] == [BufferExhaustedError] * 3


def test_cancelled_send_gives_its_place_back(
    run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path
) -> None:
    """The first in line as well as one behind it; others follow, and the cancelled records are never sent."""

    async def main() -> None:
        async with open_producer(**SMALL) as producer:
            async with full_slab(producer):
                values = [b"cancelled first", b"cancelled second", b"kept"]
                sends = [asyncio.create_task(producer.send("t", value + LARGE_VALUE)) for value in values]
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
                kept = asyncio.create_task(producer.send("t", b"kept" + LARGE_VALUE))
                await until(lambda: queued(producer))
            await (await kept)

    run(main())
    assert [value[:9] for value in read_values(log_dir, "t") if value and value[0]] == [b"first", b"kept" + bytes(5)]


def test_cancelled_wait_for_metadata(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        async with open_producer() as producer:
            await producer.send_and_wait("t", b"first")
            stop_sender(producer._producer)
            for waiting in (producer.send("unknown", b"value"), producer.partitions_for("unknown")):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, SOON_S)  # type: ignore[arg-type]
            resume_sender(producer)
            assert (await producer.send_and_wait("unknown", b"value")).offset == 0

    run(main())


def test_cancelled_acknowledgement_does_not_recall_the_record(
    run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path
) -> None:
    async def main() -> None:
        async with open_producer() as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            stop_sender(producer._producer)
            future = await producer.send("t", b"second", partition=0)
            waits: list[Awaitable[Any]] = [future, producer.flush(), producer.send_and_wait("t", b"third", partition=0)]
            for wait in waits:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait, SOON_S)
            assert not future.cancel()
            assert not future.cancelled()
            assert future.running()
            resume_sender(producer)
            assert (await future).offset == 1

    run(main())
    assert read_values(log_dir, "t") == [b"first", b"second", b"third"]


def test_columns_cut_short_say_what_is_accepted(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([LARGE_VALUE] * 10)})

    async def main() -> None:
        async with open_producer(**SMALL, max_block_ms=300) as producer:
            await producer.send_and_wait("t", b"first")
            stop_sender(producer._producer)
            try:
                with pytest.raises(BufferExhaustedError) as caught:
                    await producer.send_batch("t", rows)
            finally:
                resume_sender(producer)
            accepted = caught.value.accepted
            assert accepted is not None
            assert accepted.rows.tolist() == [0, 1, 2, 3]
            assert (await accepted).offsets.tolist() == [1, 2, 3, 4] + [-1] * 6

    run(main())


def test_columns_cut_short_by_close_say_what_is_accepted(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([LARGE_VALUE] * 10)})

    async def main() -> None:
        producer = open_producer(**SMALL)
        await producer.start()
        await producer.send_and_wait("t", b"first")
        pid = sender_pid(producer._producer)
        stop_sender(producer._producer)
        try:
            sending = asyncio.create_task(producer.send_batch("t", rows))
            await until(lambda: queued(producer))
            await producer.close(timeout=0)
            with pytest.raises(ProducerClosedError) as caught:
                await sending
            assert caught.value.accepted is not None
            assert caught.value.accepted.rows.tolist() == [0, 1, 2, 3]
        finally:
            os.kill(pid, signal.SIGCONT)

    run(main())


def test_cancelled_columns_give_their_place_back(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([LARGE_VALUE] * 10)})

    async def main() -> None:
        async with open_producer(**SMALL) as producer:
            async with full_slab(producer):
                sending = asyncio.create_task(producer.send_batch("t", rows))
                await until(lambda: queued(producer))
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
                assert queued(producer) == 0
            await producer.send_and_wait("t", b"next")

    run(main())


def test_cancelled_start_leaves_nothing(open_producer: Callable[..., AsyncProducer], run: Run) -> None:
    """The fixtures are torn down in the other order: the loop first, which waits for its thread."""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(open_producer().start(), 0.001)

    run(main())


def test_close_ends_what_waits(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    async def main() -> None:
        producer = open_producer(**SMALL)
        await producer.start()
        await producer.send_and_wait("t", b"first")
        inner = producer._producer
        stop_sender(inner)
        pid = sender_pid(inner)
        try:
            while inner._accumulator.state.pool.available_memory():
                future = await producer.send("t", LARGE_VALUE)
            send = asyncio.create_task(producer.send("t", LARGE_VALUE))
            acknowledgement = asyncio.ensure_future(_of(future))
            await until(lambda: queued(producer))
            await producer.close(timeout=0)
            with pytest.raises(ProducerClosedError):
                await send
            with pytest.raises(IllegalStateError):
                await acknowledgement
        finally:
            os.kill(pid, signal.SIGCONT)

    run(main())


def test_lock_of_a_stopped_process_holds_up_the_loop_for_a_second_only(
    open_producer: Callable[..., AsyncProducer], run: Run
) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with open_producer(num_partitions=1, max_block_ms=1500) as producer:
            await producer.send_and_wait("t", b"first")
            inner = producer._producer
            (queue,) = inner._accumulator.state.map.topic("t").queues  # type: ignore[union-attr]
            with stopped_with(queue.lock) as pid:
                async with ticking() as turns:
                    with pytest.raises(LockTimeoutError, match=f"process {pid}"):
                        await producer.send("t", b"second", on_delivery=lambda *each: told.append(each))
                    assert turns() > 1
            assert (await producer.send_and_wait("t", b"third")).offset == 1

    run(main())
    assert [type(error) for error, _ in told] == [LockTimeoutError]


# --- loops, threads and processes -----------------------------------------------------------------------


def test_loop_is_closed_with_records_pending(settings: Settings, slab_name: str, log_dir: Path) -> None:
    """They are sent; another loop goes on with the producer."""
    producer = AsyncProducer(settings(linger_ms=200))

    async def first() -> Any:
        await producer.start()
        future = await producer.send("t", b"first", partition=0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        return future

    future = asyncio.run(first())
    gc.collect()

    async def second() -> None:
        assert (await future).offset == 0
        assert (await producer.send_and_wait("t", b"second", partition=0)).offset == 1
        await producer.close()

    asyncio.run(second())
    assert read_values(log_dir, "t") == [b"first", b"second"]
    wait_until_gone(slab_name)


def test_two_loops_in_two_threads(settings: Settings, slab_name: str, log_dir: Path) -> None:
    """Each reads the completions of both: neither waits for a slice of its own."""
    count = 200
    together = threading.Barrier(2)
    errors: list[BaseException] = []

    async def main(partition: int) -> None:
        async with AsyncProducer(settings(linger_ms=1)) as producer:
            await producer.send_and_wait("t", b"0", partition=partition)
            together.wait()
            for number in range(1, count):
                assert (await producer.send_and_wait("t", b"%d" % number, partition=partition)).offset == number

    def run_loop(partition: int) -> None:
        try:
            asyncio.run(main(partition), debug=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run_loop, args=(partition,)) for partition in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    for partition in range(2):
        assert read_values(log_dir, "t", partition) == [b"%d" % number for number in range(count)]
    wait_until_gone(slab_name)


def test_completions_that_a_thread_reads_resolve_in_the_loop(
    run: Run, settings: Settings, open_producer: Callable[..., AsyncProducer]
) -> None:
    """A future of a synchronous producer, too, can be awaited."""

    async def main() -> None:
        async with open_producer() as producer:
            with Producer(settings()) as synchronous:
                future = synchronous.send("t", b"value")
                awaited = asyncio.ensure_future(_of(future))
                await asyncio.to_thread(synchronous.flush)
                assert (await awaited).offset >= 0
                mine = await producer.send("t", b"value")
                await asyncio.to_thread(synchronous.flush)
                assert mine.done()
                assert (await mine).offset >= 0

    run(main())


async def _of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def test_fork_in_a_running_loop(settings: Settings, slab_name: str, log_dir: Path) -> None:
    """The child is a process of its own; the parent's waits, loop and place in the queue stay as they are."""

    async def main() -> None:
        async with AsyncProducer(settings(**SMALL)) as producer:
            async with full_slab(producer) as futures:
                send = asyncio.create_task(producer.send("t", b"parent" + LARGE_VALUE))
                acknowledgement = asyncio.ensure_future(futures[-1])
                await until(lambda: queued(producer))
                child = os.fork()
                if not child:
                    _run_child(producer, futures[-1])
                await asyncio.sleep(SOON_S)
                assert queued(producer) in (1, 2)  # the child may wait, too
                assert not send.done()
            await acknowledgement
            await (await send)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0

    asyncio.run(asyncio.wait_for(main(), 60))
    values = [value[:6] for records in read_topic(log_dir, "t").values() for each in records if (value := each.value)]
    assert b"parent" in values
    assert b"child" in values
    wait_until_gone(slab_name)


def _run_child(producer: AsyncProducer, parents: Any) -> None:
    async def main() -> None:
        with pytest.raises(DeadOwnerError):
            await parents
        gc.collect()
        assert (await producer.send_and_wait("t", b"child")).offset >= 0
        await producer.close()

    try:
        asyncio.run(asyncio.wait_for(main(), 60))
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    os._exit(status)


def test_forked_workers(settings: Settings, slab_name: str, log_dir: Path) -> None:
    """Each runs a loop of its own with the producer that was started before the fork."""
    producer = AsyncProducer(settings())
    asyncio.run(producer.start())

    async def work(worker: int) -> None:
        futures = [await producer.send("t", b"%d" % worker, partition=worker) for _ in range(100)]
        await asyncio.gather(*futures)
        await producer.close()

    children = []
    for worker in range(3):
        child = os.fork()
        if not child:
            status = 1
            try:
                asyncio.run(work(worker))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    asyncio.run(producer.close())
    for worker in range(3):
        assert read_values(log_dir, "t", worker) == [b"%d" % worker] * 100
    wait_until_gone(slab_name)


def test_sender_is_killed_while_a_record_is_awaited(
    run: Run, open_producer: Callable[..., AsyncProducer], log_dir: Path
) -> None:
    async def main() -> None:
        async with open_producer(num_partitions=1) as producer:
            await producer.send_and_wait("t", b"first")
            stop_sender(producer._producer)
            future = await producer.send("t", b"second")
            awaited = asyncio.ensure_future(_of(future))
            await asyncio.sleep(0)
            async with ticking() as turns:
                kill_sender(producer._producer)
                before = turns()
                assert (await awaited).offset == 1
                assert turns() > before + 10  # while the next sender starts
            kill_sender(producer._producer)
            assert (await producer.send_and_wait("t", b"third")).offset == 2

    run(main())
    assert read_values(log_dir, "t") == [b"first", b"second", b"third"]


def test_no_sender_can_be_started(
    run: Run, open_producer: Callable[..., AsyncProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_producer(linger_ms=60_000, num_partitions=1) as producer:
            await producer.send("t", b"first")
            await producer.flush()
            future = await producer.send("t", b"second")

            def fail(_: object) -> None:
                raise SenderError("no sender today")

            with monkeypatch.context() as patch:
                patch.setattr(SenderWatch, "__call__", fail)
                kill_sender(producer._producer)
                for wait in (future, producer.flush(), producer.send("t", bytes(16 << 10))):
                    with pytest.raises(SenderError, match="no sender today"):
                        await wait
            await producer.flush()
            assert (await future).offset == 1

    run(main())


def test_transactions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id = 'orders': AsyncProducer has no transactions"):
        AsyncProducer({"bootstrap.servers": "localhost:1", "transactional.id": "orders"})


# --- what a wait leaves ---------------------------------------------------------------------------------


def test_idle_loop_is_not_pressed_and_leaves_no_descriptor(
    run: Run, open_producer: Callable[..., AsyncProducer]
) -> None:
    def fifos() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
        return sum("shmaccum" in link and ".wakeup." in link for link in links)

    async def main() -> None:
        before = fifos()
        async with open_producer() as producer:
            slab = producer._producer._slab
            await producer.send_and_wait("t", b"value")
            asleep = slab.geometry.process(slab.me) + Process.LOOP_ASLEEP
            assert fifos() == before + 2  # the sender's, and ours
            await until(lambda: not slab.words[asleep])
            await until(lambda: fifos() == before + 1)
            for _ in range(3):  # it comes back
                await producer.send_and_wait("t", b"value")
        assert fifos() == before

    run(main())


def test_awaited_records_need_no_slice(run: Run, open_producer: Callable[..., AsyncProducer]) -> None:
    """The doorbell wakes the loop: without the slices of waiting, every record is acknowledged all the same."""

    async def main() -> None:
        async with open_producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            slab = producer._producer._slab
            pending = slab.companion(PendingBatches).of_loop()
            pending._check = lambda: None  # type: ignore[method-assign]
            for _ in range(50):
                await producer.send_and_wait("t", b"value")
            assert slab.companion(PendingBatches).of_loop() is pending

    run(main())


def test_form() -> None:
    """A mock of the class awaits what has to be awaited."""
    assert inspect.iscoroutinefunction(shmaccum.AsyncProducer.send)
