"""Producers with different settings: which of these share a slab, which change it, and which need one of their own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_broker import FakeBroker
from fixture_types import Link, Produce, Settings, Start
from kafka.record import MemoryRecords
from producers import (
    in_the_way,
    kill_sender,
    sender_pid,
    sender_starts,
    settings_of,
    wait_until,
    wait_until_gone,
    wait_until_stored,
)

from shmaccum import Producer, ProducerConfig
from shmaccum.errors import DeliveryTimeoutError, KafkaStorageError, SlabAbiError
from tools.support.messages import PRODUCE


@pytest.fixture
def settings(log_dir: Path) -> Iterator[Settings]:
    """Return a function that gives settings of a slab with a derived name; at the end, all such slabs must go."""
    made: set[str] = set()

    def make(**changes: object) -> dict[str, object]:
        given = settings_of("", log_dir, **changes)
        made.add(ProducerConfig.parse(given).slab_name(os.geteuid()))
        return given

    yield make
    for name in made:
        wait_until_gone(name)


def stay(link: Link, settings: dict[str, object], topic: str = "t") -> None:
    """Be a producer, and send what is asked for; answer how many milliseconds its acknowledgement took."""
    with Producer(settings) as producer:
        producer.partitions_for(topic)
        link.send((producer._slab.name, sender_pid(producer)))
        while (value := link.recv()) is not None:
            started = time.monotonic()
            producer.send(topic, value, partition=0).get(30)
            link.send((time.monotonic() - started) * 1000)


# --- one slab ----------------------------------------------------------------------------------------


CHANGES: list[dict[str, object]] = [
    {"client_id": "another"},
    {"linger_ms": 100},
    {"delivery_timeout_ms": 40_000, "request_timeout_ms": 3_000},
    {"compression_type": "zstd"},
    {"retries": 7},
    {"max_request_size": 1 << 19},
    {"retry_backoff_ms": 7, "reconnect_backoff_ms": 8, "metadata_max_age_ms": 9_000, "connections_max_idle_ms": 1},
    {"send_buffer_bytes": -1, "socket_connection_setup_timeout_ms": 500},
]


@pytest.mark.parametrize("name", ["", "given"])
def test_changed_settings_use_the_existing_slab(settings: Settings, slab_name: str, start: Start, name: str) -> None:
    """A graceful reload: processes with the new settings come while those with the old ones are at work."""
    name = name and slab_name
    old = start(stay, settings(shmaccum_name=name))
    slab, sender = old.hear()
    for changes in CHANGES:
        with Producer(settings(shmaccum_name=name, **changes)) as new:
            assert (new._slab.name, sender_pid(new)) == (slab, sender)
            assert new.send("t", b"new").get(20).offset >= 0
            old.tell(b"old")
            assert old.hear() is not None
            if changes is CHANGES[-1]:
                old.finish()
                assert new.send("t", b"newer").get(20).offset >= 0
            assert sender_starts(new) == 1


def test_refusal_names_each_setting_and_both_values(settings: Settings, slab_name: str, start: Start) -> None:
    """Whether the slab is one of this process or not."""
    given = settings(shmaccum_name=slab_name)
    other = start(stay, given)
    other.hear()
    for here in (contextlib.nullcontext, Producer):
        with here(given), pytest.raises(SlabAbiError) as refused:
            Producer(given | {"shmaccum.slot.size": 4096, "acks": "1", "linger.ms": 3})
        assert str(refused.value) == (
            f"slab '{slab_name}' is in use with other settings: acks is 'all' there and '1' here; enable.idempotence "
            "is true there and false here; shmaccum.slot.size is 16384 there and 4096 here. Programs that share a slab "
            "need equal settings: end the programs with the other values, and try again once their sender is "
            "gone, sender.idle.ms later; or choose another shmaccum.name here"
        )
    other.finish()


# --- each producer's own -----------------------------------------------------------------------------


def test_a_batch_is_full_at_the_least_batch_size_of_its_producers(kept: Settings, topic: str) -> None:
    with (
        Producer(kept(linger_ms=60_000, batch_size=1 << 20)) as large,
        Producer(kept(linger_ms=60_000, batch_size=8192)) as small,
        Producer(kept(linger_ms=60_000, batch_size=0)) as none,
    ):
        futures = [large.send(topic, bytes(1000), partition=0) for _ in range(50)]
        large.poll(0.3)
        assert not any(future.is_done for future in futures)
        futures.append(small.send(topic, b"fills it", partition=0))
        assert [future.get(20).offset for future in futures] == list(range(51))
        last = small.send(topic, b"lingers", partition=0)
        small.poll(0.1)
        assert not last.is_done
        assert none.send(topic, b"does not", partition=0).get(20).offset == 52


def test_shared_batch_leaves_after_the_least_linger(kept: Settings, start: Start, topic: str) -> None:
    patient = start(stay, kept(linger_ms=30_000, delivery_timeout_ms=100_000), topic)
    patient.hear()
    with Producer(kept(linger_ms=0)) as hasty:
        hasty.send(topic, b"first", partition=0).get(20)
        patient.tell(b"patient")
        wait_until(lambda: hasty._slab.undelivered() != (0, 0), "the patient one has begun a batch")
        hasty.poll(0.2)
        assert hasty._slab.undelivered() == (1, 1), "it lingers"
        hasty.send(topic, b"hasty", partition=0).get(20)
        assert patient.hear() < 20_000
    patient.finish()


BRIEF: dict[str, object] = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "retry_backoff_ms": 10}
BRIEF_ERRORS = DeliveryTimeoutError, KafkaStorageError
"""Errors of a record that cannot be written in time. As in Kafka, an attempt that ends after that has its own error."""


def test_no_record_expires_before_the_timeout_of_its_producer(
    kept: Settings, start: Start, kept_log: Path, topic: str
) -> None:
    """While nothing can be written, one gives up soon, and others' records are delivered: also of its own process."""
    patient = start(stay, kept(), topic)
    patient.hear()
    with Producer(kept(**BRIEF)) as brief, Producer(kept()) as neighbour:
        brief.partitions_for(topic)
        with in_the_way(kept_log / f"{topic}-0"), in_the_way(kept_log / f"{topic}-1"):
            pending = neighbour.send(topic, b"patient", partition=1)
            future = brief.send(topic, b"brief", partition=0)
            with pytest.raises(BRIEF_ERRORS):
                future.get(20)
            patient.tell(b"patient")
            time.sleep(0.6)
            assert not pending.is_done
        assert patient.hear() >= 600
        pending.get(20)
    patient.finish()
    wait_until_stored(kept_log, 1, topic)


def test_each_batch_has_the_compression_of_its_producer(kept: Settings, kept_log: Path, topic: str) -> None:
    """Also one that is sent before it is full, which the sender compresses, in a slab whose maker does not."""
    value = b"all work and no play " * 40
    with Producer(kept()) as plain, Producer(kept(compression_type="zstd")) as packed:
        for producer in (plain, packed, plain):
            producer.send(topic, value, partition=0).get(20)
        packed.send(topic, value * 1000, partition=0).get(20)
    batches = MemoryRecords(b"".join(path.read_bytes() for path in sorted((kept_log / f"{topic}-0").glob("*.log"))))
    found = []
    while batches.has_next():
        found.append(batches.next_batch().compression_type)
    assert found == [0, 4, 0, 4]


# --- what the newest one sets for all ------------------------------------------------------------------


def test_newest_value_applies_to_the_sender(settings: Settings, tmp_path: Path) -> None:
    """And to the next one, though it is started by the producer with the old value: the other has left."""
    log = tmp_path / "sender.log"
    with Producer(settings(num_partitions=2, sender_log_file=log)) as old:
        assert len(old.partitions_for("first")) == 2
        with Producer(settings(num_partitions=5)) as new:
            assert len(new.partitions_for("second")) == 5
            assert sender_starts(new) == 1
        assert "setting num.partitions changed from 2 to 5" in log.read_text()
        kill_sender(old)
        assert len(old.partitions_for("third")) == 5
        assert sender_starts(old) == 2


def test_next_request_has_the_new_values(fake: FakeBroker, connect: Produce) -> None:
    old = connect(client_id="the-old-one")
    old.send("t", b"value", partition=0).get(20)
    connections = len(fake.connections)
    connect(client_id="the-new-one", request_timeout_ms=4321)
    old.send("t", b"value", partition=1).get(20)
    frames = [request.frame for request in fake.of(PRODUCE)]
    assert [b"the-old-one" in frame for frame in frames] == [True, False]
    assert [b"the-new-one" in frame for frame in frames] == [False, True]
    assert (4321).to_bytes(4, "big") in frames[1]
    assert len(fake.connections) == connections
