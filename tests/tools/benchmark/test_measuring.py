"""Rounds, turns, and what ends them."""

from __future__ import annotations

import pytest

from tools.benchmark.cases.base import Turn, Variant
from tools.benchmark.errors import BenchmarkError, MissingError, VoidError
from tools.benchmark.measuring import Progress, run_variant


def variant(turn: Turn, *, rounds_at_most: int = 99) -> Variant:
    return Variant("v", "a variant", ("ours", "peer"), turn, ("x",), rounds_at_most=rounds_at_most)


def test_all_take_their_turns() -> None:
    turns: list[str] = []

    def turn(contestant: str) -> dict[str, float]:
        turns.append(contestant)
        return {"x": float(len(turns))}

    result = run_variant(variant(turn), 2, Progress(), warm_up=True)
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]
    rounds = {name: [each["x"] for each in of["rounds"]] for name, of in result["contestants"].items()}
    assert rounds == {"ours": [4.0, 5.0], "peer": [3.0, 6.0]}, "the first two are the warm-up"
    assert result["ratios"]["peer"]["x"] == pytest.approx((4 / 3 + 5 / 6) / 2)


def test_what_takes_long_has_fewer_rounds_and_smoke_no_warm_up() -> None:
    result = run_variant(variant(lambda _: {"x": 1.0}, rounds_at_most=2), 7, Progress(), warm_up=False)
    assert [len(of["rounds"]) for of in result["contestants"].values()] == [2, 2]


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (VoidError("3 records are missing"), "void", "3 records are missing"),
        (BenchmarkError("a worker has died"), "void", "it failed: a worker has died"),
        (MissingError("there is no Java"), "missing", "there is no Java"),
    ],
)
def test_a_turn_that_fails_ends_the_variant(
    error: BenchmarkError, kind: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
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
