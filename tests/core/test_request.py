"""Batches sealed by the core, read by another library; what it leaves to Python code; deaths while it seals."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of
from core_slabs import LIVING, Slab, deaths
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from shmaccum import _core
from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.errors import NotLeaderOrFollowerError
from shmaccum.record import v2
from shmaccum.shm.layout import SlotState

PRODUCER_ID, EPOCH = 77, 3
PLACE = ("t", 3)
VALUES = [b"first", b"second", b"third"]
TIMES = [1_000, 900, 5_000]


class Sender:
    """A sender with one drained batch of three records."""

    def __init__(
        self,
        core: Any = _core,
        *,
        values: list[bytes] = VALUES,
        idempotent: bool = True,
        keeps_checksums: bool = True,
        lane: int = 0,
        opened: bool = True,
    ) -> None:
        self.slab = Slab(4, core, slot_size=SLOT_SIZE, keeps_checksums=keeps_checksums)
        producer = Producer(self.slab, core)
        for value, timestamp in zip(values, TIMES, strict=False):
            producer.append(body_of(value), timestamp)
        self.sequences = core.Sequences(self.slab.segment, idempotent)
        if idempotent:
            self.sequences.use_producer_id(PRODUCER_ID, EPOCH)
        self.counts = core.Completer(self.slab.segment, self.sequences, v2.HEADER_SIZE)
        self.set, self.word = self.slab.set, self.slab.get
        self.deques = [SimpleNamespace(topic_partition=PLACE, lane=lane) for _ in range(20)]
        if lane:
            self.set("partitions", "key", lane << 52, PARTITION)
            self.set("lanes", "producer_id", (PRODUCER_ID + 1) * opened, lane - 1)
        partitions = SimpleNamespace(by_entry=self.deques)
        self.sealer = core.InPlaceSealer(self.slab.segment, partitions, {1: ("orders", 2, 7)}.__getitem__)
        self.batch = core.RecordBatch(self.slab.segment, 0)
        self.batch.state = SlotState.IN_FLIGHT
        self.set("partitions", "in_flight", 1, PARTITION)
        self.sequences.drained(self.batch)
        self.in_flight: list[Any] = [None] * self.slab.slot_count

    def send(self) -> ProduceBatch:
        (sealed,), rest = self.sealer.seal_all([self.batch], self.in_flight, self.counts)
        assert rest == []
        produced: ProduceBatch = sealed
        return produced


@pytest.fixture
def sender() -> Sender:
    return Sender()


def bytes_of(sealed: ProduceBatch) -> bytes:
    return b"".join(sealed.payload)


# --- sealing --------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=3), st.booleans())
def test_another_library_reads_what_was_sealed(values: list[bytes], idempotent: bool) -> None:
    sender = Sender(values=values, idempotent=idempotent)
    sealed = sender.send()
    read = MemoryRecords(bytes_of(sealed)).next_batch()
    assert read.validate_crc()
    assert [(record.value, record.timestamp, record.offset) for record in read] == [
        (value, timestamp, offset) for offset, (value, timestamp) in enumerate(zip(values, TIMES, strict=False))
    ]
    identity = (PRODUCER_ID, EPOCH, 0) if idempotent else (-1, -1, -1)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == identity
    assert (sealed.producer_id, sealed.producer_epoch, sealed.base_sequence) == identity
    assert (read.attributes, read.leader_epoch, read.base_offset) == (0, -1, 0)
    assert (sealed.size, sealed.record_count, sealed.magic) == (len(bytes_of(sealed)), len(values), 2)
    assert (sealed.max_timestamp, sealed.slot, sealed.topic_partition) == (max(TIMES[: len(values)]), 0, PLACE)
    assert read.max_timestamp == sealed.max_timestamp
    assert sender.in_flight[0] is sender.batch
    assert sender.word("partitions", "records_drained", PARTITION) == len(values)


def test_a_batch_says_that_it_is_of_a_transaction() -> None:
    sealed = Sender(lane=2).send()
    assert (sealed.transactional_id, sealed.transaction_version, sealed.transaction) == ("orders", 2, 7)
    read = MemoryRecords(bytes_of(sealed)).next_batch()
    assert read.validate_crc()
    assert (read.attributes, read.producer_id) == (v2.TRANSACTIONAL, PRODUCER_ID)


@pytest.mark.parametrize("opened", [True, False], ids=["numbered", "not-numbered"])
def test_a_batch_of_a_lane_that_is_closed_meanwhile_is_not_sent(opened: bool) -> None:
    """Without a producer id, it would be visible whatever the transaction's end."""
    sender = Sender(lane=2, opened=opened)
    sender.set("lanes", "producer_id", 0, 1)
    assert sender.sealer.seal_all([sender.batch], sender.in_flight, sender.counts) == ([], [sender.batch])
    assert sender.in_flight[0] is None


LEFT_TO_PYTHON: dict[str, Callable[[Sender], object]] = {
    "split": lambda sender: sender.batch.cut(1),
    "to be compressed": lambda sender: sender.set("headers", "linger", sender.word("headers", "linger") | 1),
    "an empty batch": lambda sender: sender.set("headers", "commit", 100 << 25),
    "more than its slots hold": lambda sender: sender.set("headers", "commit", SLOT_SIZE + 1 << 25 | 3 << 1),
    "a partition that is not known": lambda sender: sender.deques.__delitem__(slice(PARTITION, None)),
    "a timestamp without an end": lambda sender: sender.set("headers", "base_timestamp", 1 << 63),
}


@pytest.mark.parametrize("case", LEFT_TO_PYTHON)
def test_what_is_not_this_simple_is_left_to_python_code(sender: Sender, case: str) -> None:
    LEFT_TO_PYTHON[case](sender)
    before = bytes(sender.slab.segment)
    assert sender.sealer.seal_all([sender.batch], sender.in_flight, sender.counts) == ([], [sender.batch])
    assert bytes(sender.slab.segment) == before
    assert sender.in_flight == [None] * 4


def test_death_while_a_batch_is_sealed(stepping: ModuleType) -> None:
    """The next sender seals it again, and nothing but header and statistics differs."""
    expected = bytes_of(Sender().send())
    for sender, _ in deaths(lambda: Sender(stepping), Sender.send):
        assert bytes_of(sender.send()) == expected
        assert sender.batch.state == SlotState.IN_FLIGHT


# --- answers --------------------------------------------------------------------------------------


def test_stored_batches_are_concluded_counted_and_pushed(sender: Sender) -> None:
    sealed = sender.send()
    contributors: set[int] = set()
    done, size = sender.counts.conclude_stored([ProduceResponse(sealed, 40, -1)], sender.in_flight, 9, contributors)
    assert (done, size, contributors) == ([sender.batch], sealed.size, {LIVING})
    assert sender.batch.state == SlotState.COMPLETING
    assert sender.in_flight == [None] * 4
    assert sender.word("superblock", "records_sent") == 3
    assert sender.word("partitions", "last_offset", PARTITION) == 43, "of the next record"
    assert sender.word("partitions", "in_flight", PARTITION) == 0
    assert sender.word("processes", "ring_tail", LIVING) == 1
    with pytest.raises(ValueError, match="released"):
        len(sealed.payload[0])


ENDINGS: dict[str, Callable[[Sender], object]] = {
    "expired": lambda sender: setattr(sender.batch, "state", SlotState.COMPLETING),
    "in parts": lambda sender: sender.batch.cut(1),
    "not in flight": lambda sender: sender.in_flight.__setitem__(0, None),
}


@pytest.mark.parametrize("ending", ["refused", "of no slot", *ENDINGS])
def test_the_first_answer_that_says_more_ends_it(sender: Sender, ending: str) -> None:
    """Answers about a partition are handled in their order."""
    if ending == "of no slot":
        other = ProduceResponse(ProduceBatch(PLACE, (), 1, 2, -1, -1, -1, 0, 4), 40)
    elif ending == "refused":
        other = ProduceResponse(sender.send(), error=NotLeaderOrFollowerError)
    else:
        other = ProduceResponse(sender.send(), 40)
        ENDINGS[ending](sender)
    stored = ProduceResponse(ProduceBatch(PLACE, (), 3, 2, -1, -1, -1, 0, 0), 40)
    before = bytes(sender.slab.segment)
    assert sender.counts.conclude_stored([other, stored], sender.in_flight, 9, set()) == ([], 0)
    assert bytes(sender.slab.segment) == before
