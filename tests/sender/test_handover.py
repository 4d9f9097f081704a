"""A supervised sender waits for the role, gets it from one that a producer started, and keeps it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start, leave
from producers import Settings, sender_pid, sender_starts, wait_until
from senders import Hand, HandRun, read_topic

from shmaccum import Producer, ProducerConfig
from shmaccum._core import Super
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaStorageError, ShmaccumError
from shmaccum.sender.handover import has_successor
from shmaccum.sender.log.log_transport import LogTransport
from shmaccum.sender.process import serve
from shmaccum.sender.sender import Sender
from shmaccum.shm.slab import Slab


def be_supervised(link: Connection, settings: dict[str, object]) -> str:
    """Be ``shmaccum sender``."""
    try:
        serve(ProducerConfig.parse(settings), lambda slab: link.send("serving"), supervised=True)
    except ShmaccumError as error:
        return f"{type(error).__name__}: {error}"
    return "left"


def forever(settings: dict[str, object]) -> dict[str, object]:
    return settings | {"sender.idle.ms": -1}


def wait_for_heir(slab: Slab) -> None:
    wait_until(lambda: has_successor(slab), "a supervised sender waits for the role")


def test_a_producers_sender_hands_over_under_load(settings: Settings, start: Start, log_dir: Path) -> None:
    """The supervised one goes on under the same producer id, and every record is stored once and in order."""
    with Producer(settings(batch_size=2048)) as producer:
        producer.partitions_for("t")
        first, words = sender_pid(producer), producer._slab.words
        producer_id = words[Super.PRODUCER_ID]
        heir = start(be_supervised, forever(settings(batch_size=2048)))
        count = 0

        def send_until(condition: Callable[[], bool]) -> None:
            nonlocal count
            deadline_s = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < deadline_s
                for partition in range(2):
                    producer.send("t", b"%d" % count, partition=partition)
                count += 1
                time.sleep(0.0005)  # load enough

        send_until(lambda: sender_pid(producer) == heir.pid)
        behind = count + 500
        send_until(lambda: count >= behind)
        assert heir.hear() == "serving"
        producer.flush(60)
        assert words[Super.PRODUCER_ID] == producer_id
        assert sender_starts(producer) == 2
        wait_until(lambda: not os.path.exists(f"/proc/{first}"), "the first one has ended")
        leave(heir)
    for records in read_topic(log_dir, "t").values():
        values = [record.value for record in records]
        assert values == [b"%d" % number for number in range(len(values))]
        assert len(values) in (0, count)


def test_a_sender_that_sleeps_is_woken_for_it(settings: Settings, start: Start) -> None:
    with Producer(settings(sender_idle_ms=60_000)) as producer:
        words = producer._slab.words
        wait_until(lambda: words[Super.SENDER_ASLEEP], "the sender sleeps, for ten seconds")
        time.sleep(1.1)  # one more housekeeping comes before that
        began_s = time.monotonic()
        heir = start(be_supervised, forever(settings())).ready("serving")
        assert time.monotonic() - began_s < 9
        leave(heir)


def test_a_supervised_one_keeps_the_role_and_the_other_waits_for_its_end(settings: Settings, start: Start) -> None:
    """However that one ends: the other is there at once, and producers start none of their own."""
    given = forever(settings(linger_ms=60_000, delivery_timeout_ms=100_000))
    first = start(be_supervised, given).ready("serving")
    with Producer(given) as producer:
        second = start(be_supervised, given)
        wait_for_heir(producer._slab)
        producer.send("t", b"value", partition=0)
        time.sleep(1.5)  # longer than a sender takes to see who waits
        assert sender_pid(producer) == first.pid
        first.kill()
        assert second.hear() == "serving"
        assert sender_starts(producer) == 2
        third = start(be_supervised, given)
        wait_for_heir(producer._slab)
        leave(second)
        assert third.hear() == "serving"
        assert sender_pid(producer) == third.pid
        leave(third)


def test_waiting_sender_that_dies_or_stops_keeps_no_other_from_the_role(settings: Settings, start: Start) -> None:
    given = forever(settings(linger_ms=60_000, delivery_timeout_ms=100_000))
    first = start(be_supervised, given).ready("serving")
    with Producer(given | {"sender.idle.ms": 100}) as producer:
        dying, stopped = start(be_supervised, given), start(be_supervised, given)
        wait_for_heir(producer._slab)
        wait_until(lambda: len(list(producer._slab.processes.in_use())) == 4, "both of them wait")
        dying.kill()
        stopped.signal(signal.SIGSTOP)
        wait_until(lambda: not has_successor(producer._slab), "neither of them looks any more")
        producer.send("t", b"value", partition=0)
        first.kill()
        wait_until(lambda: sender_pid(producer), "the producer has started one")
        own = sender_pid(producer)
        assert own not in (first.pid, dying.pid, stopped.pid)
        stopped.signal(signal.SIGCONT)
        assert stopped.hear() == "serving"
        assert sender_starts(producer) == 3
        leave(stopped)


def be_supervised_and_unable(link: Connection, settings: dict[str, object]) -> str:
    def fail(transport: LogTransport) -> None:
        raise KafkaStorageError("cannot be used")

    pytest.MonkeyPatch().setattr(LogTransport, "start", fail)
    return be_supervised(link, settings)


def test_one_that_cannot_serve_does_not_ask_for_the_role(settings: Settings, start: Start) -> None:
    with Producer(settings()) as producer:
        first = sender_pid(producer)
        assert start(be_supervised_and_unable, settings()).result() == "KafkaStorageError: cannot be used"
        assert not producer._slab.words[Super.HEIR_MS]
        assert sender_pid(producer) == first


def append(run: HandRun, value: bytes) -> None:
    run.accumulator.append(TopicPartition("t", 0), 0, None, value)


def is_seen_by(sender: Sender, run: HandRun) -> bool:
    """Be one who waits for the role; return whether the sender has seen that."""
    run.slab.words[Super.HEIR_MS] = time.monotonic_ns() // 1_000_000
    return sender.has_handed_over


@contextlib.contextmanager
def asked_to_hand_over(run: HandRun) -> Iterator[threading.Thread]:
    """Run a sender that sends one batch, gets no answer, and sees that another sender waits for the role."""
    sender = Sender(run.accumulator.sender, run.transport, run.doorbell, run.config, gives_way=True)
    run.transport.held = True
    append(run, b"in flight")
    leaving = threading.Thread(target=sender.run, daemon=True)
    leaving.start()
    try:
        wait_until(lambda: run.transport.sent, "the batch is in flight")
        append(run, b"queued")
        wait_until(lambda: is_seen_by(sender, run), "it sees who waits")
        yield leaving
    finally:
        sender.stop()
        sender.stop()
        leaving.join(20)
        assert not leaving.is_alive()


@pytest.mark.parametrize("requests", [1, 5])
def test_what_is_in_flight_is_answered_and_nothing_more_is_sent(
    start_run: Callable[..., HandRun], requests: int
) -> None:
    run = start_run(request_timeout_ms=30_000, max_in_flight_requests_per_connection=requests)
    transport: Hand = run.transport
    with asked_to_hand_over(run) as leaving:
        polls = len(transport.asked)
        wait_until(lambda: len(transport.asked) > polls + 3, "it waits for the answer")
        assert leaving.is_alive()
        transport.held = False
        leaving.join(20)
        assert not leaving.is_alive()
    assert transport.sent == [(TopicPartition("t", 0), 0)]
    assert run.slab.undelivered() == (1, 1)


def test_an_answer_is_waited_for_no_longer_than_request_timeout_ms(start_run: Callable[..., HandRun]) -> None:
    run = start_run(request_timeout_ms=300, delivery_timeout_ms=60_000)
    with asked_to_hand_over(run) as leaving:
        leaving.join(20)
        assert not leaving.is_alive()
    assert run.transport.sent == [(TopicPartition("t", 0), 0)]
    assert run.slab.undelivered() == (2, 2)
    run.resign()
    # The next one sends it again under its number.
    successor = start_run(request_timeout_ms=300, delivery_timeout_ms=60_000)
    successor.run_until(lambda: successor.slab.undelivered() == (0, 0))
    assert successor.transport.sent == [(TopicPartition("t", 0), 0), (TopicPartition("t", 0), 1)]
