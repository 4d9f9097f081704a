"""The sender's loop, pass by pass, on the log: what it sends, and when it leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from senders import HandRun, counter, of_partition, read_values
from splitting import SLOT, T0, T1, StartRun

from shmaccum._core import Partition, Process, Super


@pytest.mark.usefixtures("clock")
def test_sends_what_has_lingered(run: HandRun, log_dir: Path) -> None:
    futures = [run.send(T0, b"%d" % number) for number in range(3)]
    run.run(3, after_ms=0)
    assert read_values(log_dir, "t") == []
    assert 0 < run.transport.asked[-1] <= 5
    run.run(3)
    assert [future.get(0).offset for future in futures] == [0, 1, 2]
    assert read_values(log_dir, "t") == [b"0", b"1", b"2"]
    assert counter(run, Super.BATCHES_SENT) == 1
    assert counter(run, Super.RECORDS_SENT) == 3
    assert counter(run, Super.REQUESTS_SENT) == 1
    assert counter(run, Super.BYTES_SENT) == counter(run, Super.FILL_BYTES)
    assert counter(run, Super.CAPACITY_BYTES) == SLOT
    assert of_partition(run, T0, Partition.LAST_OFFSET) == 3
    assert of_partition(run, T0, Partition.RECORDS_SENT) == 3


def test_a_request_has_one_batch_a_partition(run: HandRun) -> None:
    for number in range(3):
        run.send(T0, b"%d" % number + bytes(SLOT // 2))
        run.send(T1, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert sorted(run.transport.sent) == [(T0, 0), (T1, 0)]
    run.run(2)
    assert sorted(run.transport.sent[2:]) == [(T0, 1), (T0, 2), (T1, 1), (T1, 2)]
    assert counter(run, Super.REQUESTS_SENT) == 3


def test_a_backlog_goes_out_in_one_pass(run: HandRun) -> None:
    """As many requests as the broker takes, each with one batch of the partition; the last batch is not full yet."""
    run.send(T0)
    run.run(2)
    for number in range(5):
        run.send(T0, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert run.transport.sent == [(T0, number) for number in range(5)]
    assert counter(run, Super.REQUESTS_SENT) == 5
    assert of_partition(run, T0, Partition.QUEUED) == 1


def test_a_backlog_does_not_keep_answers_waiting(start_run: StartRun) -> None:
    """However many requests may be in flight, a pass sends five; then it looks for answers."""
    run = start_run(enable_idempotence=False, max_in_flight_requests_per_connection=100)
    for number in range(9):
        run.send(T0, b"%d" % number + bytes(SLOT // 2))
    run.run(1)
    assert len(run.transport.sent) == 5
    run.run(2)
    assert len(run.transport.sent) == 9


def test_a_request_has_a_size(start_run: StartRun) -> None:
    run = start_run(max_request_size=SLOT)
    run.send(T0, bytes(SLOT // 2))
    run.send(T1, bytes(SLOT // 2))
    run.run(1)
    assert len(run.transport.sent) == 1
    run.run(1)
    assert len(run.transport.sent) == 2


def test_one_at_a_time_without_idempotence(start_run: StartRun) -> None:
    """``max.in.flight.requests.per.connection`` 1: the partition is muted until the answer is there."""
    run = start_run(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    run.transport.held = True
    for number in range(3):
        run.send(T0, b"%d" % number + bytes(SLOT // 2))
    run.run(4)
    assert run.transport.sent == [(T0, -1)]
    assert of_partition(run, T0, Partition.MUTED) == 1
    run.transport.held = False
    run.run(1)
    assert of_partition(run, T0, Partition.MUTED) == 0
    run.run(4)
    assert len(run.transport.sent) == 3
    assert counter(run, Super.BYTES_SENT) == counter(run, Super.FILL_BYTES)


def test_the_next_sender_mutes_nothing(start_run: StartRun, log_dir: Path) -> None:
    """What was in flight when a sender died is queued again, and its partition is open again."""
    settings = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    run = start_run(**settings)
    run.transport.held = True
    run.send(T0)
    run.run(2)
    assert (of_partition(run, T0, Partition.MUTED), of_partition(run, T0, Partition.IN_FLIGHT)) == (1, 1)
    run.resign()
    successor = start_run(**settings)
    assert (of_partition(run, T0, Partition.MUTED), of_partition(run, T0, Partition.IN_FLIGHT)) == (0, 0)
    future = successor.send(T0)
    successor.run(4)
    assert future.get(0).offset == 2
    # Without sequence numbers the log cannot tell that it had the first one already.
    assert read_values(log_dir, "t") == [b"value"] * 3


def test_stop_twice_leaves_at_once(start_run: StartRun) -> None:
    run = start_run(linger_ms=100_000, delivery_timeout_ms=200_000)
    future = run.send(T0)
    run.sender.stop()
    run.sender.stop()
    run.sender.run()
    assert not future.is_done
    assert run.slab.undelivered() == (1, 1)


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


def test_batches_rest_after_the_time_in_which_others_were_sent(
    start_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_run()
    rests: list[tuple[float, float]] = []
    monkeypatch.setattr(
        run.accumulator.sender, "rest_after", lambda began_ms, ended_ms: rests.append((began_ms, ended_ms))
    )
    run.run(2)
    assert rests == []
    run.send(T0)
    before_ms = time.monotonic() * 1000
    run.run(1)
    ((began_ms, ended_ms),) = rests
    assert before_ms <= began_ms < ended_ms <= time.monotonic() * 1000
