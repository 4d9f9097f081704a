"""A large record uses scattered free slots at once, and delays no other record."""

from __future__ import annotations

from pathlib import Path

from fixture_types import Link, Produce, Settings, Start
from producers import in_the_way, wait_until
from senders import read_values

from shmaccum import Producer
from shmaccum._core import Slot
from shmaccum.shm.layout import SlotState, state_of

SLOTS = 32
SLOT = 16_384
FULL = bytes(15_000)
"""A value of which a slot holds one."""


def send_when_told(link: Link, settings: dict[str, object], values: list[bytes]) -> list[int]:
    """Send records to partition 0, and return their offsets."""
    with Producer(settings) as producer:
        producer.partitions_for("t")
        link.send("ready")
        link.recv()
        futures = [producer.send("t", value, partition=0) for value in values]
        return [future.get(30).offset for future in futures]


def test_large_record_does_not_wait_for_adjacent_slots(
    produce: Produce, start: Start, settings: Settings, log_dir: Path
) -> None:
    """Every other slot is free; the others hold batches of an unreachable partition."""
    changes = {
        "num_partitions": 2,
        "batch_size": SLOT,
        "buffer_memory": SLOTS * SLOT,
        "max_block_ms": 4_000,
        "batch_max_bytes": SLOT,
    }
    producer = produce(**changes)
    producer.partitions_for("t")
    pool, slab = producer._accumulator.state.pool, producer._slab
    large = start(send_when_told, settings(**changes), [b"large" * 4_000, b"larger" * 20_000])
    small = start(send_when_told, settings(**changes), [b"small %d" % number for number in range(100)])
    assert (large.hear(), small.hear()) == ("ready", "ready")

    with in_the_way(log_dir / "t-1"):
        with in_the_way(log_dir / "t-0"):
            for number in range(SLOTS):
                producer.send("t", FULL, partition=number % 2)
        wait_until(lambda: pool.available_memory() == SLOTS * SLOT // 2, "what is for partition 0 is delivered")
        states = state_of(slab.headers[:, Slot.STATE])
        assert (states != SlotState.FREE).tolist() == [False, True] * (SLOTS // 2)

        large.tell()
        small.tell()
        offsets = [*large.result(), *small.result()]

    producer.flush(30)
    assert sorted(offsets) == list(range(SLOTS // 2, SLOTS // 2 + 102))
    stored = read_values(log_dir, "t", 0)
    assert [value for value in stored if value not in (FULL, b"large" * 4_000, b"larger" * 20_000)] == [
        b"small %d" % number for number in range(100)
    ]
    assert [value for value in stored if value and value.startswith(b"large")] == [b"large" * 4_000, b"larger" * 20_000]
    assert read_values(log_dir, "t", 1) == [FULL] * (SLOTS // 2)
    assert slab.core.view("processes")["waits"].sum() == 0, "no process has waited for memory"
