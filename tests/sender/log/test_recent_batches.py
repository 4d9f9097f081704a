from __future__ import annotations

from shmaccum.sender.log.recent_batches import BATCHES_KEPT, PRODUCERS_KEPT, RecentBatches, StoredBatch


def batches_of(sequences: range, epoch: int = 0) -> list[StoredBatch]:
    return [StoredBatch(epoch, sequence, 10, 1000 + sequence) for sequence in sequences]


def recent(producer_id: int, batches: list[StoredBatch]) -> RecentBatches:
    kept = RecentBatches()
    for batch in batches:
        kept.add(producer_id, batch)
    return kept


def test_a_batch_is_found_by_all_of_its_identity() -> None:
    kept = recent(7, [StoredBatch(2, 30, 10, 500)])
    assert kept.find(7, 2, 30, 10) == 500
    assert kept.find(8, 2, 30, 10) is None
    assert kept.find(7, 1, 30, 10) is None
    assert kept.find(7, 2, 40, 10) is None
    assert kept.find(7, 2, 30, 9) is None


def test_offset_0_is_a_find() -> None:
    assert recent(7, [StoredBatch(0, 0, 1, 0)]).find(7, 0, 0, 1) == 0


def test_five_batches_are_remembered_as_a_broker_does() -> None:
    kept = recent(7, batches_of(range(0, 60, 10)))
    assert BATCHES_KEPT == 5
    assert kept.find(7, 0, 0, 10) is None
    assert [kept.find(7, 0, sequence, 10) for sequence in range(10, 60, 10)] == [1010, 1020, 1030, 1040, 1050]


def test_the_producer_that_was_silent_longest_is_forgotten() -> None:
    kept = RecentBatches()
    (batch,) = batches_of(range(1))
    for producer_id in range(PRODUCERS_KEPT):
        kept.add(producer_id, batch)
    kept.add(0, batch)
    kept.add(PRODUCERS_KEPT, batch)
    assert kept.find(1, 0, 0, 10) is None
    assert kept.find(0, 0, 0, 10) == kept.find(2, 0, 0, 10) == kept.find(PRODUCERS_KEPT, 0, 0, 10) == 1000


def test_newer_batches_displace_older_ones() -> None:
    kept = recent(7, batches_of(range(0, 40, 10)))
    kept.extend(recent(7, batches_of(range(40, 60, 10))))
    kept.extend(recent(8, batches_of(range(1))))
    assert kept.find(7, 0, 0, 10) is None
    assert [kept.find(7, 0, sequence, 10) for sequence in range(10, 60, 10)] == [1010, 1020, 1030, 1040, 1050]
    assert kept.find(8, 0, 0, 10) == 1000


def test_it_is_complete_once_every_producer_has_five() -> None:
    kept = RecentBatches()
    assert not kept.is_complete()
    kept.extend(recent(7, batches_of(range(4))))
    assert not kept.is_complete()
    kept.extend(recent(7, batches_of(range(4, 5))))
    assert kept.is_complete()
    kept.extend(recent(8, batches_of(range(1))))
    assert not kept.is_complete()
