"""Options and lots of `--exactly-once`: what belongs to one kind of run is refused in the others, with the kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.stress import once_options, options
from tools.stress.once_lots import Lots
from tools.stress.once_source import options_of


def lots(directory: Path, seed: int = 7) -> Lots:
    directory.mkdir(exist_ok=True)
    return Lots(str(directory), seed, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def test_lots_depend_on_the_seed_and_their_number(tmp_path: Path) -> None:
    first, again, other = lots(tmp_path / "a"), lots(tmp_path / "b"), lots(tmp_path / "c", seed=8)
    drawn = [first.draw("task").random() for _ in range(5)]
    assert len(set(drawn)) == 5
    assert [again.draw("task").random() for _ in range(5)] == drawn
    assert other.draw("task").random() != drawn[0]
    assert first.draw("rows").random() != drawn[0]


def test_a_process_that_draws_takes_the_number(tmp_path: Path) -> None:
    ours, alone = lots(tmp_path / "a"), lots(tmp_path / "b")
    pid = os.fork()
    if not pid:
        ours.draw("task")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    alone.draw("task")
    assert ours.draw("task").random() == alone.draw("task").random()


def test_one_thing_dies_at_most(tmp_path: Path) -> None:
    of, died = lots(tmp_path), []
    deaths = [(0.3, "a", lambda: died.append("a")), (0.3, "b", lambda: died.append("b"))]
    for _ in range(100):
        death = of.death(of.draw("task"), 2, *deaths)
        if death._left:
            death._deed()
    assert 30 < len(died) < 90
    assert of.notes() == {"a": died.count("a"), "b": died.count("b")}


def test_all_lots_are_options_of_the_data_source(tmp_path: Path) -> None:
    options = options_of(lots(tmp_path))
    assert options["stress.lots.directory"] == str(tmp_path)
    assert options["stress.lots.slow_task"] == "0.6"
    assert len(options) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kill-executor", "0.1"], "--kill-executor is for --spark local-cluster only"),
        (["--spark", "local", "--kill-executor", "0.1"], "--kill-executor is for --spark local-cluster only"),
        (["--spark", "local", "--stop-worker", "0.1"], "--stop-worker is for runs without --spark only"),
        (["--fail-task", "0.1"], "--fail-task is for --spark local and --spark local-cluster only"),
        (["--spark", "yarn"], "argument --spark: invalid choice: 'yarn'"),
    ],
)
def test_a_wrong_combination(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        once_options.parse(arguments)
    assert message in capsys.readouterr().err


def test_spark_needs_exactly_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--spark", "local"])
    assert "--spark needs --exactly-once" in capsys.readouterr().err


def test_defaults_of_each_kind() -> None:
    assert once_options.parse([]).workers == 3
    assert once_options.parse(["--spark", "local-cluster"]).kill_executor > 0
    assert once_options.parse(["--spark", "local"]).kill_driver < once_options.parse([]).kill_driver
