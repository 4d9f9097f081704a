"""The sender's loop, pass by pass, on the log."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import senders
from broker_model import Clock, stop_the_clock
from senders import HandRun, read_values

from shmaccum.accumulator.append.futures import FutureRecordMetadata
from shmaccum.accumulator.drain import open_batch_throttle
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    InvalidRecordError,
    KafkaStorageError,
    NetworkError,
    SlabFullError,
)
from shmaccum.sender import sender as sender_module
from shmaccum.sender.sleep import LONGEST_SLEEP_MS
from shmaccum.shm.layout import Partition, Process, Super, TopicState

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SLOT = 1024

StartRun = Callable[..., HandRun]


@pytest.fixture
def start_run(tmp_path: Path, slab_name: str) -> Iterator[StartRun]:
    """Return a function that starts a sender by hand, with the settings given; ``_`` stands for Kafka's ``.``."""
    runs: list[HandRun] = []

    def start(**settings: object) -> HandRun:
        defaults: dict[str, object] = {
            "shmaccum.name": slab_name,
            "transport": "log",
            "log.dir": str(tmp_path / "log"),
            "num.partitions": 2,
            "batch.size": SLOT,
            "buffer.memory": 16 * SLOT,
            "linger.ms": 5,
            "retry.backoff.ms": 10,
            "request.timeout.ms": 100,
            "delivery.timeout.ms": 60_000,
            "shmaccum.max.processes": 4,
            "shmaccum.max.topics": 4,
            "shmaccum.max.partitions": 6,
        }
        config = ProducerConfig.parse(defaults | {name.replace("_", "."): value for name, value in settings.items()})
        runs.append(HandRun(config))
        runs[-1].begin()
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock, for tests of what is not due yet: else it might be, on a machine that is busy."""
    clock = stop_the_clock(monkeypatch)
    monkeypatch.setattr(senders, "time", clock)
    return clock


@pytest.fixture
def run(start_run: StartRun) -> HandRun:
    """A sender by hand that knows topic "t", of two partitions."""
    run = start_run()
    run.topic("t")
    return run


def send(run: HandRun, to: TopicPartition, value: bytes = b"value") -> FutureRecordMetadata:
    return run.accumulator.append(to, 0, None, value).future


def counter(run: HandRun, word: int) -> int:
    return int(run.slab.words[word])


def of_partition(run: HandRun, partition: TopicPartition, word: int) -> int:
    entry = run.accumulator.map.queues[partition].entry
    return int(run.slab.words[run.slab.geometry.partition(entry) + word])


# --- metadata -------------------------------------------------------------------------------------------


def test_a_topic_is_made_on_first_use(start_run: StartRun, tmp_path: Path) -> None:
    run = start_run(num_partitions=3)
    run.topic("new")
    entry = run.accumulator.map.topic("new")
    assert entry is not None
    assert (entry.state, len(entry.queues)) == (TopicState.KNOWN, 3)
    assert sorted(path.name for path in (tmp_path / "log").iterdir() if path.is_dir()) == ["new-0", "new-1", "new-2"]


def test_a_topic_that_cannot_be_made(start_run: StartRun, tmp_path: Path) -> None:
    run = start_run()
    in_the_way = tmp_path / "log" / "t-1"
    in_the_way.write_bytes(b"")
    run.topic("t")
    entry = run.accumulator.map.topic("t")
    assert entry is not None
    assert (entry.state, entry.error) == (TopicState.FAILED, KafkaStorageError)
    in_the_way.unlink()
    run.topic("t")
    assert (entry.state, len(entry.queues)) == (TopicState.KNOWN, 2)


def test_a_topic_that_finds_no_room_in_the_slab(start_run: StartRun, caplog: pytest.LogCaptureFixture) -> None:
    run = start_run(num_partitions=4)
    run.topic("t")
    run.topic("u")
    entry = run.accumulator.map.topic("u")
    assert entry is not None
    assert (entry.state, entry.error) == (TopicState.FAILED, SlabFullError)
    assert "shmaccum.max.partitions" in caplog.text
    # The others go on.
    future = send(run, TopicPartition("t", 3))
    run.run(3)
    assert future.get(0).offset == 0


def test_nearly_full_tables_are_logged_once(start_run: StartRun, caplog: pytest.LogCaptureFixture) -> None:
    run = start_run(num_partitions=1, shmaccum_max_partitions=10, shmaccum_max_topics=20)
    for number in range(8):
        run.topic(f"t{number}")
    assert "of the slab's" not in caplog.text
    for number in range(8, 10):
        run.topic(f"t{number}")
    assert caplog.text.count("9 of the slab's 10 partitions are in use") == 1
    assert caplog.text.count("shmaccum.max.partitions") == 1
    assert "shmaccum.max.topics" not in caplog.text


def test_a_topic_grows(run: HandRun, tmp_path: Path) -> None:
    (tmp_path / "log" / "t-2").mkdir()
    run.topic("t")
    assert run.accumulator.map.queue(TopicPartition("t", 2)) is not None
    future = send(run, TopicPartition("t", 2))
    run.run(3)
    assert future.get(0).partition == 2


def test_the_next_sender_knows_the_topics(start_run: StartRun) -> None:
    """What the last one knew went with it: its successor asks about all topics of the slab at once."""
    run = start_run()
    run.topic("t")
    run.topic("u")
    futures = [send(run, T0), send(run, U0)]
    run.resign()
    successor = start_run()
    successor.run(3)
    assert successor.transport.updates[0] == {"t", "u"}
    assert [future.get(0).offset for future in futures] == [0, 0]


# --- sending --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("clock")
def test_sends_what_has_lingered(run: HandRun, tmp_path: Path) -> None:
    futures = [send(run, T0, b"%d" % number) for number in range(3)]
    run.run(3, after_ms=0)
    assert read_values(tmp_path / "log", "t") == []
    assert 0 < run.transport.asked[-1] <= 5
    run.run(3)
    assert [future.get(0).offset for future in futures] == [0, 1, 2]
    assert read_values(tmp_path / "log", "t") == [b"0", b"1", b"2"]
    assert counter(run, Super.BATCHES_SENT) == 1
    assert counter(run, Super.RECORDS_SENT) == 3
    assert counter(run, Super.REQUESTS_SENT) == 1
    assert counter(run, Super.BYTES_SENT) == counter(run, Super.FILL_BYTES)
    assert counter(run, Super.CAPACITY_BYTES) == SLOT
    assert of_partition(run, T0, Partition.LAST_OFFSET) == 3
    assert of_partition(run, T0, Partition.RECORDS_SENT) == 3


def test_a_request_has_one_batch_a_partition(run: HandRun) -> None:
    for number in range(3):
        send(run, T0, b"%d" % number + bytes(SLOT // 2))
        send(run, T1, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert sorted(run.transport.sent) == [(T0, 0), (T1, 0)]
    run.run(2)
    assert sorted(run.transport.sent[2:]) == [(T0, 1), (T0, 2), (T1, 1), (T1, 2)]
    assert counter(run, Super.REQUESTS_SENT) == 3


def test_a_backlog_goes_out_in_one_pass(run: HandRun) -> None:
    """As many requests as the broker takes, each with one batch of the partition; the last batch is not full yet."""
    send(run, T0)
    run.run(2)
    for number in range(5):
        send(run, T0, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert run.transport.sent == [(T0, number) for number in range(5)]
    assert counter(run, Super.REQUESTS_SENT) == 5
    assert of_partition(run, T0, Partition.QUEUED) == 1


def test_a_backlog_does_not_keep_answers_waiting(start_run: StartRun) -> None:
    """However many requests may be in flight, a pass sends five; then it looks for answers."""
    run = start_run(enable_idempotence=False, max_in_flight_requests_per_connection=100)
    run.topic("t")
    for number in range(9):
        send(run, T0, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert len(run.transport.sent) == 5
    run.run(2)
    assert len(run.transport.sent) == 9


def test_a_request_has_a_size(start_run: StartRun) -> None:
    run = start_run(max_request_size=SLOT)
    run.topic("t")
    send(run, T0, bytes(SLOT // 2))
    send(run, T1, bytes(SLOT // 2))
    run.run(1)
    assert len(run.transport.sent) == 1
    run.run(1)
    assert len(run.transport.sent) == 2


def test_up_to_five_in_flight(run: HandRun, tmp_path: Path) -> None:
    """More a broker would not know again if they came twice."""
    futures = [send(run, T0)]
    run.run(2)  # nothing follows the first batch of all before that is acknowledged
    run.transport.held = True
    futures += [send(run, T0, b"%d" % number + bytes(SLOT // 2)) for number in range(1, 8)]
    run.run(8)
    assert [sequence for _, sequence in run.transport.sent] == [0, 1, 2, 3, 4, 5]
    assert of_partition(run, T0, Partition.IN_FLIGHT) == 5
    run.transport.held = False
    run.run(8)
    assert [future.get(0).offset for future in futures] == list(range(8))
    assert of_partition(run, T0, Partition.IN_FLIGHT) == 0


def test_one_at_a_time_without_idempotence(start_run: StartRun) -> None:
    """``max.in.flight.requests.per.connection`` 1: the partition is muted until the answer is there."""
    run = start_run(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    run.topic("t")
    run.transport.held = True
    for number in range(3):
        send(run, T0, b"%d" % number + bytes(SLOT // 2))
    run.run(4)
    assert run.transport.sent == [(T0, -1)]
    assert of_partition(run, T0, Partition.MUTED) == 1
    run.transport.held = False
    run.run(1)
    assert of_partition(run, T0, Partition.MUTED) == 0
    run.run(4)
    assert len(run.transport.sent) == 3


def test_the_next_sender_mutes_nothing(start_run: StartRun, tmp_path: Path) -> None:
    """What was in flight when a sender died is queued again, and its partition is open again."""
    settings = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    run = start_run(**settings)
    run.topic("t")
    run.transport.held = True
    send(run, T0)
    run.run(2)
    assert (of_partition(run, T0, Partition.MUTED), of_partition(run, T0, Partition.IN_FLIGHT)) == (1, 1)
    run.resign()
    successor = start_run(**settings)
    assert (of_partition(run, T0, Partition.MUTED), of_partition(run, T0, Partition.IN_FLIGHT)) == (0, 0)
    future = send(successor, T0)
    successor.run(4)
    assert future.get(0).offset == 2
    # Without sequence numbers the log cannot tell that it had the first one already.
    assert read_values(tmp_path / "log", "t") == [b"value"] * 3


# --- failure --------------------------------------------------------------------------------------------


def test_a_failure_that_passes(run: HandRun, tmp_path: Path) -> None:
    """Something is in the way of the partition for a while: tried again, with back-off, in order, exactly once."""
    directory, aside = tmp_path / "log" / "t-0", tmp_path / "aside"
    directory.rename(aside)
    directory.write_bytes(b"")
    futures = [send(run, T0, b"%d" % number + bytes(SLOT // 2)) for number in range(3)]
    other = send(run, T1)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) >= 3, after_ms=5)
    assert not any(future.is_done for future in futures)
    directory.unlink()
    aside.rename(directory)
    run.run_until(lambda: counter(run, Super.BATCHES_SENT) == 4, after_ms=5)
    assert [future.get(0).offset for future in futures] == [0, 1, 2]
    assert other.get(0).offset == 0
    assert [value[:1] for value in read_values(tmp_path / "log", "t") if value] == [b"0", b"1", b"2"]
    # The batch behind the one that failed was never sent before it.
    assert [sequence for partition, sequence in run.transport.sent if partition == T0][-3:] == [0, 1, 2]


def test_back_off(run: HandRun) -> None:
    run.transport.refuse[T0] = NetworkError
    send(run, T0)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) == 4, after_ms=0)
    head = run.accumulator.map.queues[T0].first()
    assert head is not None
    sent = len(run.transport.sent)
    now = head.last_attempt_ms
    backoff = int(run.accumulator.sender.ready(run.transport.cluster(), now).next_ready_check_delay_ms)
    assert 64 <= backoff <= 96
    run.transport.asked.clear()
    run.sender.run_once(now + backoff - 1)
    run.sender.run_once(now + backoff - 1)
    assert max(run.transport.asked) == 1
    assert len(run.transport.sent) == sent
    run.sender.run_once(now + backoff)
    assert len(run.transport.sent) == sent + 1


def test_retries_are_counted(start_run: StartRun) -> None:
    run = start_run(retries=2)
    run.topic("t")
    run.transport.refuse[T0] = NetworkError
    future = send(run, T0)
    run.run_until(lambda: counter(run, Super.BATCHES_FAILED))
    assert len(run.transport.sent) == 3
    with pytest.raises(NetworkError):
        future.get(0)


def test_a_failure_that_is_final(run: HandRun, tmp_path: Path) -> None:
    run.transport.refuse[T0] = InvalidRecordError
    futures = [send(run, T0), send(run, T1)]
    run.run(2)
    with pytest.raises(InvalidRecordError, match="t-0"):
        futures[0].get(0)
    assert futures[1].get(0).offset == 0
    assert counter(run, Super.BATCHES_FAILED) == counter(run, Super.RECORDS_FAILED) == 1
    assert of_partition(run, T0, Partition.RECORDS_FAILED) == 1
    # The partition goes on.
    run.transport.refuse.clear()
    again = send(run, T0)
    run.run(2)
    assert again.get(0).offset == 0


def test_a_duplicate_counts_as_stored(run: HandRun) -> None:
    run.transport.refuse[T0] = DuplicateSequenceNumberError
    future = send(run, T0)
    run.run(2)
    assert future.get(0).offset == -1


def test_delivery_timeout_in_retry(run: HandRun) -> None:
    """Given up with the last attempt's error, or in the queue; only those concerned get it."""
    run.transport.refuse[T0] = NetworkError
    failing, fine = send(run, T0), send(run, T1)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) >= 2, after_ms=0)
    run.run_until(lambda: counter(run, Super.BATCHES_FAILED), after_ms=60_001)
    with pytest.raises((NetworkError, DeliveryTimeoutError)):
        failing.get(0)
    assert fine.get(0).offset == 0


def test_delivery_timeout_without_a_leader(start_run: StartRun) -> None:
    run = start_run()
    run.accumulator.map.request("t")
    run.run(1, after_ms=0)
    run.transport.no_leader = frozenset({T0})
    failing, fine = send(run, T0), send(run, T1)
    run.run_until(lambda: counter(run, Super.BATCHES_SENT), after_ms=0)
    assert {"t"} in run.transport.updates
    assert fine.get(0).offset == 0
    batch = run.accumulator.map.queues[T0].first()
    assert batch is not None
    run.transport.asked.clear()
    for _ in range(2):
        run.sender.run_once(batch.created_ms + 59_999)
    assert max(run.transport.asked) == 1
    run.sender.run_once(batch.created_ms + 60_000)
    with pytest.raises(DeliveryTimeoutError, match="t-0"):
        failing.get(0)
    assert run.slab.undelivered() == (0, 0)


# --- sleeping and leaving -------------------------------------------------------------------------------


@pytest.mark.usefixtures("clock")
def test_sleeps_until_something_happens(run: HandRun) -> None:
    """Two looks, then a sleep that only a wakeup or the clock of housekeeping ends; awake, it needs no wakeup."""
    while counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    run.transport.asked.clear()
    run.run(1)
    assert (run.transport.asked, counter(run, Super.SENDER_ASLEEP) > 0) == ([0], True)
    run.run(1)
    assert counter(run, Super.SENDER_ASLEEP) == 0
    assert run.transport.asked[1] > sender_module.HOUSEKEEPING_MS / 2


def test_a_sender_that_sent_all_there_was_looks_once_more_and_sleeps(run: HandRun) -> None:
    send(run, T0)
    run.transport.asked.clear()
    run.run(1)
    assert len(run.transport.sent) == 1
    asleep = counter(run, Super.SENDER_ASLEEP)
    run.run(1)
    assert run.transport.asked[0] == 0 < run.transport.asked[1]
    assert asleep > 0


def test_answers_do_not_make_a_sender_listen_again(run: HandRun) -> None:
    """A look at what came meanwhile is all that is between it and its next sleep."""
    run.transport.held = True
    future = send(run, T0)
    run.run(1)
    asleep = counter(run, Super.SENDER_ASLEEP)
    run.transport.held = False
    run.run(1)
    assert future.get(0).offset == 0
    assert counter(run, Super.SENDER_ASLEEP) == asleep > 0


def test_a_sleep_says_when_it_ends_until_the_next_look(run: HandRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not due before then need not be rung for; but what comes behind a look may be too late for it."""
    run.transport.held = True
    send(run, T0)
    run.run(1)
    assert counter(run, Super.SENDER_WAKES) == 0
    run.transport.held = False
    began_ms = time.monotonic_ns() // 1_000_000
    run.run(1, after_ms=0)
    assert counter(run, Super.SENDER_WAKES) >= began_ms + run.transport.asked[-1] > began_ms

    looks: list[int] = []
    cluster = run.transport.cluster

    def look() -> object:
        looks.append(counter(run, Super.SENDER_WAKES))
        return cluster()

    monkeypatch.setattr(run.transport, "cluster", look)
    assert counter(run, Super.SENDER_ASLEEP)
    run.run(1, after_ms=0)
    assert set(looks) == {0}
    assert counter(run, Super.SENDER_WAKES) >= began_ms + run.transport.asked[-1] > began_ms


def test_doorbell_pressed_between_the_two_checks(run: HandRun) -> None:
    while not counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    future = send(run, T0)
    run.slab.button.press()
    run.run(2)
    assert future.get(0).offset == 0


def test_doorbell_stays_wanted_until_the_sender_looks(run: HandRun) -> None:
    """Only the sender itself clears its word."""
    while not (asleep := counter(run, Super.SENDER_ASLEEP)):
        run.run(1)
    for _ in range(3):
        assert run.slab.button.press() == asleep
    assert counter(run, Super.SENDER_ASLEEP) == asleep


@pytest.mark.usefixtures("clock")
def test_busy_sender_sleeps_without_listening(run: HandRun) -> None:
    """It could not send what producers append meanwhile."""
    send(run, T0)
    run.transport.held = run.transport.busy = True
    run.run(1)
    assert counter(run, Super.SENDER_ASLEEP) == 0
    assert run.transport.asked[-1] > sender_module.HOUSEKEEPING_MS / 2
    assert run.slab.button.press() == 0

    run.transport.held = run.transport.busy = False
    while not counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    assert run.transport.asked[-1] == 0


def test_a_busy_sender_naps_until_some_answers_have_come(
    run: HandRun, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(clock, "sleep", naps.append)
    send(run, T0)
    run.transport.held = run.transport.busy = True
    run.run(3)
    assert len(naps) == 2
    assert 0 < naps[0] < naps[1]

    run.transport.busy = False
    run.run(1)
    assert len(naps) == 2


def test_late_press_does_not_keep_a_busy_sender_awake(run: HandRun) -> None:
    run.transport.busy = True
    run.doorbell.ring()
    run.run(1)
    with pytest.raises(BlockingIOError):
        os.read(run.doorbell.descriptor, 1)


@pytest.mark.parametrize("idle_ms", [-1, 0, 3_600_000])
def test_never_sleeps_for_ever(start_run: StartRun, idle_ms: int) -> None:
    """A producer may have been killed between its append and the ring."""
    run = start_run(sender_idle_ms=idle_ms)
    run.topic("t")
    run.run(4)
    assert max(run.transport.asked) <= LONGEST_SLEEP_MS


def test_stop_delivers_what_is_there(start_run: StartRun) -> None:
    run = start_run(linger_ms=100_000, delivery_timeout_ms=200_000)
    run.topic("t")
    futures = [send(run, T0), send(run, T1)]
    run.sender.stop()
    run.sender.run()
    assert [future.get(0).offset for future in futures] == [0, 0]


def test_stop_twice_leaves_at_once(start_run: StartRun) -> None:
    run = start_run(linger_ms=100_000, delivery_timeout_ms=200_000)
    run.topic("t")
    future = send(run, T0)
    run.sender.stop()
    run.sender.stop()
    run.sender.run()
    assert not future.is_done
    assert run.slab.undelivered() == (1, 1)


def test_leaves_when_idle(start_run: StartRun) -> None:
    run = start_run(sender_idle_ms=0)
    run.topic("t")
    send(run, T0)
    run.sender.run()
    assert run.slab.undelivered() == (0, 0)
    assert math.inf not in run.transport.asked


def test_cleans_up_behind_the_dead(run: HandRun) -> None:
    """Dead producers' places in the table are free again, and what they took and never used."""
    if not (pid := os.fork()):
        run.accumulator.pool.allocate(2 * SLOT, 0)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert len(list(run.slab.processes.in_use())) == 2
    run.run(1, after_ms=10_000)
    assert list(run.slab.processes.in_use()) == [run.slab.me]
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory
    assert counter(run, Super.RECLAIMED_SLOTS) == 2
    assert run.slab.words[run.slab.geometry.process(run.slab.me) + Process.STATE] == 1


# --- very many partitions ---------------------------------------------------------------------------------------------


def test_where_memory_is_short_batches_grow_until_there_is_an_answer(
    start_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 16  # as many partitions as there are slots
    monkeypatch.setattr(open_batch_throttle, "A_FEW", 2)
    run = start_run(num_partitions=count, shmaccum_max_partitions=count)
    run.topic("t")
    futures = [send(run, TopicPartition("t", number), b"0") for number in range(count)]
    run.transport.held = True
    for round_number in (1, 2, 3):
        run.run(3)
        at_rest = [each for each in futures if not any(each.topic_partition == sent for sent, _ in run.transport.sent)]
        assert len(at_rest) == count - count // 8
        for each in at_rest:
            send(run, each.topic_partition, b"%d" % round_number)
    run.transport.held = False
    run.run_until(lambda: counter(run, Super.RECORDS_SENT) == count + 3 * len(at_rest))
    assert len(run.transport.sent) == count
    assert run.slab.words[Super.REQUESTS_SENT] <= count // 2 + 1
    assert read_values(Path(run.config.log_dir), "t", count - 1) == [b"0", b"1", b"2", b"3"]


@pytest.mark.plain  # compiled, a method of the accumulator cannot be replaced
def test_batches_rest_after_the_time_in_which_others_were_sent(
    start_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_run()
    run.topic("t")
    rests: list[tuple[float, float]] = []
    monkeypatch.setattr(
        run.accumulator.sender, "rest_after", lambda began_ms, ended_ms: rests.append((began_ms, ended_ms))
    )
    run.run(2)
    assert rests == []
    send(run, T0)
    before_ms = time.monotonic() * 1000
    run.run(1)
    ((began_ms, ended_ms),) = rests
    assert before_ms <= began_ms < ended_ms <= time.monotonic() * 1000
