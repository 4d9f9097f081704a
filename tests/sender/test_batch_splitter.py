"""Batches that are sent in parts: each record in its place, and no harm done to its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixture_types import MonkeyPatch
from senders import HandRun, counter, of_partition, read_partition, read_values
from splitting import (
    T0,
    T1,
    StartRun,
    Told,
    assert_all_free,
    batches_of,
    check_sequences,
    deliver,
    numbered,
    offsets_of,
    send,
)

from shmaccum._core import Partition, Super
from shmaccum.errors import InvalidRecordError, NetworkError, RecordTooLargeError


def refuse_for_a_while(run: HandRun) -> None:
    """Refuse the batches of a partition until one has been retried."""
    run.transport.refuse[T0] = NetworkError
    retried = counter(run, Super.BATCHES_RETRIED)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) == retried + 1)
    run.transport.refuse.clear()


@pytest.mark.parametrize(
    ("count", "largest", "settings"),
    [
        (25, 500, {}),
        (25, 250, {}),
        (25, 130, {}),
        (25, 100, {"compression_type": "gzip"}),
        (15, 300, {"message_format_version": "0.10.2", "enable_idempotence": False}),
    ],
)
def test_a_batch_that_is_too_large(
    start_run: StartRun, log_dir: Path, count: int, largest: int, settings: dict[str, object]
) -> None:
    run = start_run(**settings)
    run.transport.largest = largest
    told = Told()
    values = numbered(count)
    futures = send(run, values, told=told)
    deliver(run)
    assert offsets_of(futures) == list(range(count))
    assert told.values == values
    assert read_values(log_dir, "t") == values
    assert max(batch.size for batch in batches_of(log_dir)) <= run.transport.largest
    if "enable_idempotence" not in settings:
        check_sequences(log_dir)
    assert counter(run, Super.BATCHES_SENT) == 1
    assert counter(run, Super.RECORDS_SENT) == count
    assert_all_free(run)


def test_records_keep_what_they_have(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 200
    sent = [
        (1_700_000_000_000 - number * 1000, b"key" if number % 2 else None, b"%d" % number, [("h", b"%d" % number)])
        for number in range(20)
    ]
    futures = [run.accumulator.append(T0, *record).future for record in sent]
    deliver(run)
    found = read_partition(log_dir, "t")
    assert [(record.timestamp, record.key, record.value, record.headers) for record in found] == sent
    assert [future.get(0).timestamp for future in futures] == [record[0] for record in sent]
    assert len(batches_of(log_dir)) > 2


@pytest.mark.parametrize("at", [0, 5, 10])
def test_one_record_too_large_fails_alone(run: HandRun, log_dir: Path, at: int) -> None:
    run.transport.largest = 300
    values = [*numbered(at), b"x" * 400, *numbered(10 - at)]
    futures = send(run, values)
    other = send(run, [b"other"], T1)
    deliver(run)
    with pytest.raises(RecordTooLargeError, match="t-0"):
        futures.pop(at).get(0)
    assert offsets_of(futures) == list(range(10))
    assert offsets_of(other) == [0]
    assert read_values(log_dir, "t") == [*numbered(at), *numbered(10 - at)]
    assert (counter(run, Super.RECORDS_SENT), counter(run, Super.RECORDS_FAILED)) == (11, 1)
    # The broker has never heard of the record: there is no gap where it was, nor behind the batch.
    again = send(run, [b"again"])
    deliver(run)
    assert offsets_of(again) == [10]
    check_sequences(log_dir)


def test_partition_is_muted_only_while_a_part_is_in_flight(run: HandRun) -> None:
    def muted() -> int:
        return of_partition(run, T0, Partition.MUTED)

    run.transport.largest = 200
    send(run, numbered(20))
    run.run(1)
    assert not muted()
    run.transport.held = True
    run.run(1)
    sent = len(run.transport.sent)
    send(run, [b"behind"])
    send(run, [b"elsewhere"], T1)
    run.run(3)
    assert muted()
    assert [partition for partition, _ in run.transport.sent[sent:]] == [T1]
    run.transport.held = False
    deliver(run)
    assert not muted()


def test_a_part_waits_while_too_many_are_in_flight(run: HandRun, monkeypatch: MonkeyPatch) -> None:
    """Else a completion ring could overflow: a process that begins another batch counts on this limit."""
    monkeypatch.setattr("shmaccum.sender.batch_splitter.PARTS_IN_FLIGHT", 1)
    run.transport.largest = 200
    futures = [send(run, numbered(20), to) for to in (T0, T1)]
    run.run(1)
    run.transport.held = True
    run.run(3)
    assert sum(of_partition(run, to, Partition.MUTED) for to in (T0, T1)) == 1
    run.transport.held = False
    deliver(run)
    assert [offsets_of(each) for each in futures] == [list(range(20))] * 2


def test_every_part_has_its_own_attempts(start_run: StartRun) -> None:
    run = start_run(retries=1)
    run.transport.largest = 200
    futures = send(run, numbered(20))
    for _ in range(3):
        told = sum(future.is_done for future in futures)
        run.run_until(
            lambda told=told: run.accumulator.producer.pending.poll() or sum(each.is_done for each in futures) > told
        )
        refuse_for_a_while(run)
    deliver(run)
    assert offsets_of(futures) == list(range(20))


@pytest.mark.parametrize("bad", [{0}, {9}, {4}, {0, 1, 2}, {8, 9}, {3, 4, 6}, {0, 9}, set(range(10)), {0, 2, 4, 6, 8}])
def test_invalid_records_fail_alone(run: HandRun, log_dir: Path, bad: set[int]) -> None:
    """They are named by the broker; the batch's other records are none the worse for them."""
    run.transport.is_invalid = lambda value: value in {numbered(10)[number] for number in bad}
    told = Told()
    futures = send(run, numbered(10), told=told)
    deliver(run)
    assert told.values == numbered(10)
    for number in bad:
        with pytest.raises(InvalidRecordError, match="t-0"):
            futures[number].get(0)
    good = [number for number in range(10) if number not in bad]
    assert [futures[number].get(0).offset for number in good] == list(range(len(good)))
    run.transport.is_invalid = lambda value: False
    again = send(run, [b"again"])
    deliver(run)
    assert offsets_of(again) == [len(good)]
    assert read_values(log_dir, "t") == [*(numbered(10)[number] for number in good), b"again"]
    check_sequences(log_dir)
    assert_all_free(run)


def test_what_a_broker_has_named_is_not_sent_again(run: HandRun, log_dir: Path) -> None:
    """One answer names all invalid records of a batch: each run of valid ones takes one request, the others none."""
    run.transport.is_invalid = lambda value: value == b"invalid"
    futures = send(run, [*[b"invalid", b"a", b"invalid", b"invalid", b"b", b"c"] * 5, b"invalid"])
    deliver(run)
    assert [isinstance(future.exception(), InvalidRecordError) for future in futures if future.failed()] == [True] * 16
    assert read_values(log_dir, "t") == [b"a", b"b", b"c"] * 5
    assert [sequence for _, sequence in run.transport.sent] == [0, *(run // 2 * 3 + run % 2 for run in range(10))]
    check_sequences(log_dir)


def test_records_of_many_batches_are_refused_at_a_time(run: HandRun, log_dir: Path) -> None:
    """More than what is kept of them: the others are asked for again."""
    run.transport.is_invalid = lambda value: value == b"invalid"
    futures = []
    for _ in range(12):
        futures += send(run, [b"a", b"invalid", b"b", b"invalid", b"c"])
        run.run(1)
    deliver(run)
    assert [future.failed() for future in futures] == [False, True, False, True, False] * 12
    assert read_values(log_dir, "t") == [b"a", b"b", b"c"] * 12
