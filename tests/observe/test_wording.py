"""Numbers for people."""

from __future__ import annotations

from shmaccum.observe.wording import count, in_bytes, span


def test_numbers() -> None:
    sizes = {0: "0 B", 1023: "1,023 B", 1024: "1.0 KiB", 16384: "16.0 KiB", 5 << 30: "5.0 GiB", 5 << 43: "40,960.0 GiB"}
    assert {size: in_bytes(size) for size in sizes} == sizes
    spans = {900: "900 ms", 12_300: "12 s", 119_000: "119 s", 180_000: "3 min", 7_200_000: "2 h", 200_000_000: "2 days"}
    assert {time_ms: span(time_ms) for time_ms in spans} == spans
    counts = [count(0, "slot"), count(1, "slot"), count(2048, "slot"), count(2, "batch")]
    assert counts == ["0 slots", "1 slot", "2,048 slots", "2 batches"]
