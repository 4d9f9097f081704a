"""Numbers for people."""

from __future__ import annotations

import pytest

from shmaccum.observe.wording import count, in_bytes


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (16384, "16.0 KiB"),
        (33_554_432, "32.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (5 << 43, "40,960.0 GiB"),
    ],
)
def test_bytes(size: int, shown: str) -> None:
    assert in_bytes(size) == shown


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [(0, "slot", "0 slots"), (1, "slot", "1 slot"), (2048, "slot", "2,048 slots"), (2, "batch", "2 batches")],
)
def test_counts(number: int, noun: str, shown: str) -> None:
    assert count(number, noun) == shown
