"""When batches expire: by the longest limits of the producers that share one, and never before a time in the future."""

from __future__ import annotations

import pytest
from accumulators import CLUSTER, TP0, TP1, add, config_of, created_ms, first, open_accumulator
from columns import append_columns
from fixture_types import Link, OpenAccumulator, Start

from shmaccum._core import Slot
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import DeliveryTimeoutError
from shmaccum.shm.lifecycle import detach

LIMITS = {"delivery_timeout_ms": 5_000, "retries": 3}
LONGER = {"delivery_timeout_ms": 60_000, "retries": 70}


def append_and_stay(link: Link, name: str, settings: dict[str, object]) -> None:
    accumulator = open_accumulator(config_of(name, **settings))
    add(accumulator, TP0)
    link.send("appended")
    link.recv()
    detach(accumulator.slab)


def test_shared_batch_has_the_longest_limits(accumulate: OpenAccumulator, slab_name: str, start: Start) -> None:
    """Also when the one that has them is dead by then."""
    accumulator = accumulate(**LIMITS)
    add(accumulator, TP0)
    assert accumulator.sender.abort_expired_batches(created_ms(accumulator, TP0)) == []
    other = start(append_and_stay, slab_name, LONGER)
    other.hear()
    other.kill()
    batch = first(accumulator, TP0)
    assert (batch.record_count, len(batch.contributors())) == (2, 2)
    assert (batch.timeout_ms, batch.retries) == (60_000, 70)
    assert accumulator.sender.expirer._shortest_ms() == 5_000
    assert accumulator.sender.abort_expired_batches(batch.created_ms + 59_999) == []
    assert len(accumulator.sender.abort_expired_batches(batch.created_ms + 60_000)) == 1


def test_producers_of_one_process_have_limits_of_their_own(accumulate: OpenAccumulator) -> None:
    """A batch that both append to has the larger ones, in whichever order they do, by record or by column."""
    brief, patient = accumulate(**LIMITS), accumulate(**LONGER)
    add(brief, TP0)
    add(patient, TP1)
    batches = first(brief, TP0), first(brief, TP1)
    assert [(batch.timeout_ms, batch.retries) for batch in batches] == [(5_000, 3), (60_000, 70)]
    assert brief.sender.expirer._shortest_ms() == 5_000
    (expired,) = brief.sender.abort_expired_batches(created_ms(brief, TP0) + 5_500)
    assert expired.batch.partition == brief.map.queues[TP0].entry
    append_columns(brief, TP1, [b"v"])
    add(brief, TP0)
    append_columns(patient, TP0, [b"v"])
    for batch in (first(brief, TP0), first(brief, TP1)):
        assert (batch.timeout_ms, batch.retries, batch.record_count) == (60_000, 70, 2)


def test_longer_timeout_counts_until_the_batch_is_taken(
    accumulate: OpenAccumulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that waits longer appends after the sender has found that the batch expired."""
    brief, patient = accumulate(**LIMITS), accumulate(**LONGER)
    add(brief, TP0)
    expirer = brief.sender.expirer
    has_expired = expirer._has_expired

    def has_expired_before(batch: RecordBatch, now_ms: int) -> bool:
        expired = has_expired(batch, now_ms)
        if batch.record_count == 1:
            add(patient, TP0)
        return expired

    monkeypatch.setattr(expirer, "_has_expired", has_expired_before)
    assert brief.sender.abort_expired_batches(created_ms(brief, TP0) + 5_500) == []
    assert first(brief, TP0).record_count == 2


def test_shorter_timeout_takes_effect_at_once(accumulate: OpenAccumulator, slab_name: str, start: Start) -> None:
    """Though the sender had nothing to look for before the longer time was over."""
    accumulator = accumulate(**LONGER)
    add(accumulator, TP1)
    now_ms = created_ms(accumulator, TP1)
    assert accumulator.sender.abort_expired_batches(now_ms) == []
    assert accumulator.sender.expirer.next_expiry_ms == now_ms + 60_000
    other = start(append_and_stay, slab_name, LIMITS)
    other.hear()
    assert accumulator.sender.abort_expired_batches(now_ms + 1) == []
    assert accumulator.sender.expirer.next_expiry_ms <= now_ms + 1 + 5_000
    (expired,) = accumulator.sender.abort_expired_batches(now_ms + 6_000)
    assert expired.batch.contributors() != [accumulator.slab.me]
    other.tell()
    other.result()


def test_creation_time_in_the_future_expires_from_now(accumulate: OpenAccumulator) -> None:
    """The producer runs in another time namespace, or the word is damaged."""
    accumulator = accumulate(**LIMITS)
    future = accumulator.append(TP0, 0, None, b"value").future
    batch = first(accumulator, TP0)
    made_ms = batch.created_ms
    accumulator.slab.words[batch.at + Slot.CREATED_MS] += 3_600_000
    assert accumulator.sender.abort_expired_batches(made_ms) == []
    assert accumulator.sender.expirer.next_expiry_ms == made_ms + 5_000
    assert len(accumulator.sender.abort_expired_batches(made_ms + 5_000)) == 1
    with pytest.raises(DeliveryTimeoutError):
        future.get(0)


def test_longest_linger(accumulate: OpenAccumulator) -> None:
    accumulator = accumulate(linger_ms=(1 << 63) - 1, delivery_timeout_ms=2**31 - 1)
    add(accumulator, TP0)
    assert not accumulator.sender.ready(CLUSTER, created_ms(accumulator, TP0) + 10**9).ready_nodes
