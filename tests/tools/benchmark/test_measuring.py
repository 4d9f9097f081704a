"""Rounds, turns, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Capture

from tools.benchmark import sender_costs
from tools.benchmark.cases.base import Turn, Variant
from tools.benchmark.errors import BenchmarkError, MissingError, VoidError
from tools.benchmark.measuring import Progress, in_turn, run_variant


def variant(turn: Turn, **options: Any) -> Variant:
    return Variant("v", "a variant", ("ours", "peer"), turn, ("x",), **options)


def test_all_take_their_turns() -> None:
    turns: list[str] = []

    def turn(contestant: str) -> dict[str, float]:
        turns.append(contestant)
        return {"x": float(len(turns))}

    result = run_variant(variant(turn), 2, Progress(), warm_up=True)
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert [in_turn("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    rounds = {name: [each["x"] for each in of["rounds"]] for name, of in result["contestants"].items()}
    assert rounds == {"ours": [4.0, 5.0], "peer": [3.0, 6.0]}, "the first two are the warm-up"
    assert result["ratios"]["peer"]["x"][1] == pytest.approx((4 / 3 + 5 / 6) / 2)


def test_numbers_of_rounds_differ_and_ratios_pair_equal_rounds() -> None:
    turns: list[str] = []

    def turn(contestant: str) -> dict[str, float]:
        turns.append(contestant)
        return {"x": 1.0 if contestant == "peer" else float(len(turns))}

    seldom = variant(turn, seldom={"peer": 1}, rounds_times=2, rounds_at_most=4)
    result = run_variant(seldom, 3, Progress(), warm_up=False)
    assert {name: len(of["rounds"]) for name, of in result["contestants"].items()} == {"ours": 4, "peer": 1}
    assert turns == ["peer", "ours", "ours", "ours", "ours"]
    assert result["ratios"]["peer"]["x"] == (2.0, 2.0, 2.0)


def test_figures_of_all_rounds_together() -> None:
    """Figures of all rounds together are compared as such."""
    values: dict[str, list[float]] = {"ours": [], "peer": []}

    def turn(contestant: str) -> dict[str, float]:
        values[contestant].append(10.0 * len(values[contestant]) + (contestant == "ours"))
        return {"x": 1.0}

    def largest(contestant: str) -> dict[str, float]:
        return {"largest": max(values[contestant])}

    result = run_variant(variant(turn, pooled=largest), 3, Progress(), warm_up=False)
    assert result["contestants"]["ours"]["pooled"] == {"largest": 21.0}
    assert result["contestants"]["peer"]["summary"]["largest"] == (20.0, 20.0, 20.0)
    assert result["ratios"]["peer"]["largest"] == (1.05, 1.05, 1.05)


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (VoidError("3 records are missing"), "void", "3 records are missing"),
        (BenchmarkError("a worker has died"), "void", "it failed: a worker has died"),
        (MissingError("there is no Java"), "missing", "there is no Java"),
    ],
)
def test_a_turn_that_fails_ends_the_variant(error: BenchmarkError, kind: str, why: str, capsys: Capture) -> None:
    turns: list[str] = []

    def turn(contestant: str) -> dict[str, float]:
        turns.append(contestant)
        if len(turns) == 2:
            raise error
        return {"x": 1.0}

    result = run_variant(variant(turn), 3, Progress(), warm_up=False)
    assert result[kind] == why
    assert len(turns) == 2
    assert f"{kind.upper()}: {why}" in capsys.readouterr().err


def test_what_was_sent_is_what_cost() -> None:
    costs = sender_costs.sending_costs(3, 2, batches=10)
    assert len(costs) == 2
    for cost in costs:
        assert 1 <= cost["batches_per_request"] <= 3
        assert cost["mb_per_core_s"] == pytest.approx(sender_costs.BATCH_SIZE / cost["cpu_us_per_batch"])
