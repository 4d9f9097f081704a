"""What becomes of batches by their answers, pass by pass, on the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from senders import HandRun, counter, of_partition, read_values
from splitting import SLOT, T0, T1, StartRun

from shmaccum._core import Partition, Super
from shmaccum.errors import DeliveryTimeoutError, DuplicateSequenceNumberError, InvalidRecordError, NetworkError


def test_a_failure_that_passes(run: HandRun, log_dir: Path) -> None:
    """Something is in the way of the partition for a while: tried again, with back-off, in order, exactly once."""
    directory, aside = log_dir / "t-0", log_dir.parent / "aside"
    directory.rename(aside)
    directory.write_bytes(b"")
    futures = [run.send(T0, b"%d" % number + bytes(SLOT // 2)) for number in range(3)]
    other = run.send(T1)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) >= 3, after_ms=5)
    assert not any(future.is_done for future in futures)
    directory.unlink()
    aside.rename(directory)
    run.run_until(lambda: counter(run, Super.BATCHES_SENT) == 4, after_ms=5)
    assert [future.get(0).offset for future in futures] == [0, 1, 2]
    assert other.get(0).offset == 0
    assert [value[:1] for value in read_values(log_dir, "t") if value] == [b"0", b"1", b"2"]
    # The batch behind the one that failed was never sent before it.
    assert [sequence for partition, sequence in run.transport.sent if partition == T0][-3:] == [0, 1, 2]


def test_back_off(run: HandRun) -> None:
    run.transport.refuse[T0] = NetworkError
    run.send(T0)
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
    run.transport.refuse[T0] = NetworkError
    future = run.send(T0)
    run.run_until(lambda: counter(run, Super.BATCHES_FAILED))
    assert len(run.transport.sent) == 3
    with pytest.raises(NetworkError):
        future.get(0)


def test_a_failure_that_is_final(run: HandRun, log_dir: Path) -> None:
    run.transport.refuse[T0] = InvalidRecordError
    futures = [run.send(T0), run.send(T1)]
    run.run(2)
    with pytest.raises(InvalidRecordError, match="t-0"):
        futures[0].get(0)
    assert futures[1].get(0).offset == 0
    assert counter(run, Super.BATCHES_FAILED) == counter(run, Super.RECORDS_FAILED) == 1
    assert of_partition(run, T0, Partition.RECORDS_FAILED) == 1
    # The partition goes on.
    run.transport.refuse.clear()
    again = run.send(T0)
    run.run(2)
    assert again.get(0).offset == 0


def test_a_duplicate_counts_as_stored(run: HandRun) -> None:
    run.transport.refuse[T0] = DuplicateSequenceNumberError
    future = run.send(T0)
    run.run(2)
    assert future.get(0).offset == -1


def test_delivery_timeout_in_retry(run: HandRun) -> None:
    """Given up with the last attempt's error, or in the queue; only those concerned get it."""
    run.transport.refuse[T0] = NetworkError
    failing, fine = run.send(T0), run.send(T1)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) >= 2, after_ms=0)
    run.run_until(lambda: counter(run, Super.BATCHES_FAILED), after_ms=60_001)
    with pytest.raises((NetworkError, DeliveryTimeoutError)):
        failing.get(0)
    assert fine.get(0).offset == 0


def test_delivery_timeout_without_a_leader(start_sender: StartRun) -> None:
    run = start_sender()
    run.accumulator.map.request("t")
    run.run(1, after_ms=0)
    run.transport.no_leader = frozenset({T0})
    failing, fine = run.send(T0), run.send(T1)
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
