"""Brokers that take neither large batches nor every record, whatever else happens to them and to the senders.

What happens is drawn from a seed: requests and answers lost, leaders that move, time that runs out, senders that die
between any two lines. Each record is stored once and in order, or its future has the error; and the brokers
check sequence numbers as Kafka's do.
"""

from __future__ import annotations

from typing import Final

import pytest
from broker_model import SLOT, BrokerRun, Clock, Flight, TransportModel, config_of
from kafka.record import MemoryRecords
from scenes import Scene

from shmaccum._core import Process, ProduceResponse
from shmaccum.accumulator.drain import batch_drainer, completer, expirer
from shmaccum.accumulator.state import partition_map, record_batch
from shmaccum.config import ProducerConfig
from shmaccum.errors import DeliveryTimeoutError, InvalidRecordError, RecordTooLargeError
from shmaccum.sender import batch_splitter, response_handler, sealer, sender

LARGEST: Final = 260
"""Bytes of a batch that the brokers take: several of the small records, and none of the large ones."""
SMALL: Final = 40
LARGE: Final = LARGEST


def is_invalid(value: bytes) -> bool:
    return int(value.rstrip(b".")) % 7 == 3


class PickyTransport(TransportModel):
    """Connections to brokers that look at what they get before they look at its sequence number."""

    def _handle(self, node: int, flight: Flight) -> ProduceResponse:
        if len(flight.data) > LARGEST:
            return ProduceResponse(flight.batch, error=RecordTooLargeError, message="too large")
        values = [record.value or b"" for batch in MemoryRecords(flight.data) for record in batch]
        invalid = tuple(number for number, value in enumerate(values) if is_invalid(value))
        if invalid:
            named = dict.fromkeys(invalid, "")
            return ProduceResponse(flight.batch, error=InvalidRecordError, message="no good", invalid_records=named)
        return super()._handle(node, flight)


class PickyRun(BrokerRun):
    """A sender of such brokers."""

    makes_transport = PickyTransport


class PickyScene(Scene):
    """Brokers that take neither large batches nor every record."""

    lines = (
        batch_drainer,
        completer,
        expirer,
        partition_map,
        batch_splitter,
        record_batch,
        response_handler,
        sealer,
        sender,
    )
    errors = (DeliveryTimeoutError, InvalidRecordError, RecordTooLargeError)
    at_once = 30
    lines_of_a_pass, lines_of_recovery = 600, 400
    makes_run = PickyRun

    def value(self, number: int) -> bytes:
        """Return a value that is small most of the time."""
        return b"%d" % number + b"." * (LARGE if self.draw.random() < 0.05 else self.draw.randint(0, SMALL))

    def happen(self, what: str) -> None:
        super().happen(what)
        slab = self.run.slab
        at = slab.geometry.process(slab.me)
        in_ring = slab.words[at + Process.RING_TAIL] - slab.words[at + Process.RING_HEAD]
        assert in_ring <= slab.geometry.ring_length, "what the producers have not read yet is overwritten"

    def finish(self) -> None:
        super().finish()
        assert not any(is_invalid(value) for model in self.cluster.partitions.values() for value in model.values)


QUIET: Final = {"append": 30, "step": 160, "answer": 120, "store": 20}
TROUBLE: Final = {"drop": 10, "move": 6, "wait": 2}
DEATH: Final = {"die": 6, "die_twice": 2}
"""What happens, and how often compared with the rest."""


@pytest.fixture
def config(slab_name: str) -> ProducerConfig:
    return config_of(slab_name, buffer_memory=24 * SLOT, retry_backoff_ms=2)


@pytest.mark.parametrize(
    ("happenings", "seed"),
    [
        *((QUIET, seed) for seed in range(2)),
        *((QUIET | TROUBLE, seed) for seed in range(4)),
        *((QUIET | TROUBLE | DEATH, seed) for seed in range(6)),
    ],
)
def test_exactly_once(config: ProducerConfig, clock: Clock, happenings: dict[str, int], seed: int) -> None:
    scene = PickyScene(config, clock, seed)
    try:
        for what in scene.draw.choices(list(happenings), list(happenings.values()), k=400):
            scene.happen(what)
        scene.finish()
    finally:
        scene.close()
    if happenings == QUIET:
        for future in (future for futures in scene.futures.values() for future in futures.values()):
            assert future.is_done
