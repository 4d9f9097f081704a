"""What grows is found; what only goes up and down is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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


def test_the_warm_up_does_not_count() -> None:
    soak = steady()
    assert soak.problems() == []
    soak.processes["sender 1"].memory[:30] = [MIB] * 30
    soak.per_minute[0] = 1000
    assert soak.problems() == []


def test_a_step_is_no_growth() -> None:
    soak = steady()
    soak.processes["sender 1"].memory[70:] = [50 * MIB] * (SAMPLES - 70)
    assert soak.problems() == []


GROWTH: dict[str, Callable[[Soak], object]] = {
    "the memory of sender 1 grew": lambda soak: soak.processes.update(
        {"sender 1": Series([30 * MIB + i * MIB // 10 for i in range(SAMPLES)], [10] * SAMPLES)}
    ),
    "the file descriptors of producer 0 2 grew from 11 to 12": lambda soak: soak.processes.update(
        {"producer 0 2": Series([30 * MIB] * SAMPLES, [10 + i // 40 for i in range(SAMPLES)])}
    ),
    "/dev/shm grew": lambda soak: soak.shared_bytes.insert(100, 4 * MIB),
    "70 records in the last minute, 100 in the second": lambda soak: soak.per_minute.append(70),
}


@pytest.mark.parametrize("said", GROWTH)
def test_what_grows_or_falls(said: str) -> None:
    soak = steady()
    GROWTH[said](soak)
    assert [said in problem for problem in soak.problems()] == [True]


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
