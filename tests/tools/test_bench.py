"""Every case runs, and prints all of its figures."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench import harness
from tools.bench.__main__ import CASES

CALLS = ["one at a time, shmaccum", "one at a time, confluent-kafka", "poll after each, shmaccum"]
QUICK = {
    "calls --rounds 1 --scale 0.02": [*CALLS, "poll after each, confluent-kafka"],
    "distance --rounds 1 --seconds 0.2 --processes 1 --delays 0,2 --topics 2 --compression zstd": [
        f"{delay} ms, {contestant}" for delay in (0, 2) for contestant in ("shmaccum", "confluent-kafka")
    ],
    "start --rounds 1": ["shmaccum", "confluent-kafka"],
}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arguments", QUICK)
def test_a_case_prints_its_figures(arguments: str) -> None:
    command = [sys.executable, "-m", "tools.bench", *arguments.split()]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = {line[:46].strip(): line[46:].split() for line in printed.splitlines()}
    for label in QUICK[arguments]:
        assert rows[label]
        assert not any(
            float(figure.replace(",", "")) < 0 for figure in rows[label]
        )  # some can be nan, on a busy machine


def test_every_case_is_tried() -> None:
    assert {arguments.split()[0] for arguments in QUICK} == set(CASES)


def test_contestants_take_turns_and_are_compared_round_by_round() -> None:
    order: list[str] = []

    def turn(name: str, *figures: float) -> harness.Figures:
        order.append(name)
        return {"µs": figures[order.count(name) - 1]}

    turns = harness.take_turns({"a": lambda: turn("a", 2, 9, 4), "b": lambda: turn("b", 1, 3, 0)}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    rows = dict(harness.compared({name: rounds[:2] for name, rounds in turns.items()}))
    assert [figures["µs"] for figures in rows.values()] == [5.5, 2, 2.5, 2, 3]
    assert math.isnan(dict(harness.compared({name: rounds[2:] for name, rounds in turns.items()}))["  a ÷ b"]["µs"])
