"""What grows is found; what only goes up and down is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.stress.soak import Series, Soak

MIB = 1 << 20
SAMPLES = 120


def steady() -> Soak:
    soak = Soak()
    for what in ("sender 1", "producer 0 2"):
        soak.processes[what] = Series(
            [30 * MIB + i % 7 * MIB for i in range(SAMPLES)], [10 + i % 3 for i in range(120)]
        )
    soak.shared_bytes = [MIB + i % 5 * 4096 for i in range(SAMPLES)]
    soak.per_minute = [50, 100, 110, 90, 95]
    return soak


def changed(of: list[int], change: slice | int, to: Any) -> None:
    of[change] = to


GROWING = [30 * MIB + i * MIB // 10 for i in range(SAMPLES)]
CLIMBING = [10 + i // 40 for i in range(SAMPLES)]
SOAKS: list[tuple[str, Callable[[Soak], object], list[str]]] = [
    ("steady", lambda soak: None, []),
    ("warm-up", lambda soak: changed(soak.processes["sender 1"].memory, slice(30), [MIB] * 30), []),
    ("fast first minute", lambda soak: changed(soak.per_minute, 0, 1000), []),
    ("a step", lambda soak: changed(soak.processes["sender 1"].memory, slice(70, None), [50 * MIB] * 50), []),
    ("memory", lambda soak: changed(soak.processes["sender 1"].memory, slice(None), GROWING), ["memory of sender 1"]),
    (
        "descriptors",
        lambda soak: changed(
            soak.processes["producer 0 2"].descriptors, slice(None), [10 + i // 40 for i in range(120)]
        ),
        ["the file descriptors of producer 0 2 grew from 11 to 12"],
    ),
    ("shared memory", lambda soak: changed(soak.shared_bytes, -1, 8 * MIB), ["/dev/shm grew"]),
    ("throughput", lambda soak: changed(soak.per_minute, -1, 70), ["70 records in the last minute, 100 in the second"]),
]


@pytest.mark.parametrize(("change", "said"), [each[1:] for each in SOAKS], ids=[each[0] for each in SOAKS])
def test_what_grows_is_found(change: Callable[[Soak], object], said: list[str]) -> None:
    soak = steady()
    change(soak)
    problems = soak.problems()
    assert [part in problem for part, problem in zip(said, problems, strict=True)] == [True] * len(said)


def test_too_little_to_judge() -> None:
    problems = Soak().problems()
    assert [problem.split()[0:2] for problem in problems] == [["no", "sender"], ["no", "producer"], ["fewer", "than"]]


def test_samples_of_a_real_process(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(MIB))
    soak = Soak()
    soak.sample(0.0, {"producer 0": os.getpid()}, [file, tmp_path / "gone"], 0)
    soak.sample(60.0, {"producer 0": os.getpid()}, [], 500)
    series = soak.processes[f"producer 0 {os.getpid()}"]
    assert 5 * MIB < series.memory[0] < 2000 * MIB
    assert series.descriptors[0] > 2
    assert soak.shared_bytes[0] == pytest.approx(MIB, rel=0.1)
    assert soak.per_minute == [500]
