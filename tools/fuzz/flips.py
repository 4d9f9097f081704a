"""The target ``flips``: bits of queued batches that change between `send` and the sender.

An input says what is sent into a slab with ``shmaccum.checksum=append``, and which bits change then. It fails if a
record that is acknowledged differs, in the log, from what was sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from kafka.record import MemoryRecords

from shmaccum._core import WORD, FutureRecordMetadata
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.errors import ShmaccumError
from shmaccum.producer.producer import Producer
from shmaccum.shm.lifecycle import unlink
from tools.fuzz.child import Attempt, Target, try_in_child
from tools.support.own_slab import OwnSlab, now_ms

_TOPIC: Final = "flipped"
_SLOT: Final = 1088
_SLOTS: Final = 120
_USED: Final = 30
"""Slots that hold something, about."""
_HEADER_WORDS: Final = 32
_RECORDS: Final = 60
_PASSES: Final = 12
_BASE_MS: Final = 1_700_000_000_000

Sent = tuple[int, bytes | None, bytes | None]
"""Timestamp, key and value of a record."""


class FlipsTarget(Target):
    """Flips bits of batches; use as a context manager."""

    def make(self, rng: random.Random) -> bytes:
        """Return a random plan."""
        flips = []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            size = rng.choice((_HEADER_WORDS * WORD, _SLOT))
            flips.append(["headers" if size < _SLOT else "slots", rng.randrange(_USED), rng.randrange(8 * size)])
        compression = rng.choice(("none", "none", "lz4", "gzip"))
        return json.dumps({"seed": rng.randrange(1 << 32), "compression": compression, "flips": flips}).encode()

    def try_all(self, plans: Sequence[bytes]) -> Iterator[Attempt]:
        """Follow plans, each with a slab of its own."""
        for plan in plans:
            result = try_in_child(partial(self._follow, json.loads(plan)))
            unlink(f"flips-{os.getpid()}")
            shutil.rmtree(self.directory / f"{_TOPIC}-0", ignore_errors=True)
            yield Attempt(plan, *result)

    def _follow(self, plan: dict[str, Any]) -> str:
        own = OwnSlab(
            {
                "shmaccum.name": f"flips-{os.getppid()}",
                "shmaccum.checksum": plan.get("checksum", "append"),
                "transport": "log",
                "log.dir": str(self.directory),
                "num.partitions": 1,
                "batch.size": _SLOT,
                "shmaccum.slot.size": _SLOT,
                "buffer.memory": _SLOTS * _SLOT,
                "linger.ms": 10_000,
                "compression.type": plan["compression"],
                "max.block.ms": 50,
                "delivery.timeout.ms": 60_000,
                "shmaccum.max.processes": 4,
            }
        )
        being_sender = own.sending(_TOPIC, 1)
        sender, doorbell = (
            being_sender.__enter__()
        )  # never left: the damaged slab can refuse that, and the process ends
        producer = Producer(own.config)
        sent, futures, rows = _send(producer, random.Random(plan["seed"]))
        for region, slot, bit in plan["flips"]:
            at = own.slab.geometry.slot(slot) if region == "slots" else WORD * own.slab.geometry.header(slot)
            own.slab.buffer[at + bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(ShmaccumError):  # what is acknowledged before must be right
            with own.slab.reporting_damage():
                for _ in range(_PASSES):
                    doorbell.ring()
                    sender.run_once(now_ms() + 20_000)
            producer.poll(0)
        stored = _stored(self.directory / f"{_TOPIC}-0")
        offsets = _offsets(futures, rows)
        differ = [
            (record, stored.get(offset))
            for record, offset in zip(sent, offsets, strict=True)
            if offset is not None and stored.get(offset) != record
        ]
        assert not differ, f"{len(differ)} acknowledged records differ: {differ[0]}"
        missing = offsets.count(None)
        return "all stored" if not missing else "some not stored" if missing < len(offsets) else "none stored"


def _send(
    producer: Producer, rng: random.Random
) -> tuple[list[Sent], list[FutureRecordMetadata], FutureColumnsMetadata]:
    """Send records one by one, and a table; return them with their futures."""
    sent: list[Sent] = []
    futures: list[FutureRecordMetadata] = []
    for number in range(_RECORDS):
        key = rng.choice((None, b"k%d" % number))
        size = rng.choice((10, 50, 300, 300, 2000 if number % 20 == 0 else 30))
        record = (_BASE_MS + rng.randrange(100), key, rng.choice((rng.randbytes(size), b"%d" % number * (size // 2))))
        futures.append(producer.send(_TOPIC, record[2], key, timestamp_ms=record[0]))
        sent.append(record)
    values = [b"%d" % number * 40 for number in range(rng.randrange(20))]
    times = [_BASE_MS + number for number in range(len(values))]
    rows = producer.send_batch(
        _TOPIC, pa.record_batch({"value": pa.array(values, pa.binary()), "timestamp": pa.array(times)})
    )
    sent += [(time_ms, None, value) for time_ms, value in zip(times, values, strict=True)]
    return sent, futures, rows


def _offsets(futures: list[FutureRecordMetadata], rows: FutureColumnsMetadata) -> list[int | None]:
    """Return each record's offset; None if it failed or is pending. Rows count together."""
    offsets: list[int | None] = []
    for future in futures:
        with contextlib.suppress(ShmaccumError):
            offsets.append(future.get(0).offset)
            continue
        offsets.append(None)
    with contextlib.suppress(ShmaccumError):
        return [*offsets, *rows.get(0).offsets.tolist()]
    return [*offsets, *[None] * len(rows.rows)]


def _stored(directory: Path) -> dict[int, Sent]:
    """Return what a partition's log holds, by offset, as another library reads it."""
    found: dict[int, Sent] = {}
    for path in sorted(directory.glob("*.log")):
        records = MemoryRecords(path.read_bytes())
        while (batch := records.next_batch()) is not None:
            found |= {each.offset: (each.timestamp, each.key, each.value) for each in batch}
    return found
