"""``shmaccum.checksum=append``: what changes in shared memory after an append fails, and is not sent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from senders import HandRun, read_values
from splitting import SLOT, T0, StartRun, deliver, send_columns

from shmaccum._core import Slot, Super

HEADER_SIZE = 61


def a_few(run: HandRun) -> list[bytes]:
    values = [b"first", b"second" * 10, b"third"]
    for number, value in enumerate(values):
        assert run.accumulator.append(T0, 5 - number, b"key", value, (("h", b"1"),)).future
    return values


def more_than_a_slot(run: HandRun) -> list[bytes]:
    values = [bytes([number]) * (SLOT // 4) for number in range(5)]
    for value in values:
        run.send(T0, value)
    return values


def a_large_one(run: HandRun) -> list[bytes]:
    run.send(T0, b"large" * (SLOT // 2))
    return [b"large" * (SLOT // 2)]


def columns(run: HandRun) -> list[bytes]:
    values = [b"%d" % number * 30 for number in range(SLOT // 20)]
    send_columns(run, values)
    return values


Send = Callable[[HandRun], list[bytes]]
SENT: list[tuple[Send, str]] = [
    (a_few, "none"),
    (a_few, "gzip"),  # the sender compresses it
    (more_than_a_slot, "lz4"),
    (a_large_one, "zstd"),
    (columns, "none"),
    (columns, "snappy"),
]


@pytest.mark.parametrize(("send", "compression"), SENT, ids=lambda what: getattr(what, "__name__", what))
def test_what_has_changed_fails_alone(
    send: Send, compression: str, start_run: StartRun, log_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start_run(shmaccum_checksum="append", compression_type=compression)
    words, stored = run.slab.words, list[bytes]()
    for failed, where in enumerate(("nothing", "first byte", "last byte", "size", "count", "base timestamp")):
        values = send(run)
        batch = run.accumulator.map.queues[T0].first()
        assert batch is not None
        places = batch.places()
        assert places is not None
        stored += values[batch.record_count :] if failed else values
        if where == "first byte":
            run.slab.buffer[places[0][0] + HEADER_SIZE] ^= 1
        elif where == "last byte":
            run.slab.buffer[places[-1][1] - 1] ^= 0x80
        elif failed:
            words_of = {
                "size": (Slot.COMMIT, 25),
                "count": (Slot.COMMIT, 2),
                "base timestamp": (Slot.BASE_TIMESTAMP, 3),
            }
            word, bit = words_of[where]
            words[batch.at + word] ^= 1 << bit
        with caplog.at_level(logging.ERROR):
            deliver(run)
        assert ("have changed since they were appended" in caplog.text) == (failed > 0)
        assert words[Super.BATCHES_FAILED] == failed
        assert read_values(log_dir, "t", 0) == stored, where
