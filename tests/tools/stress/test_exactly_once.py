"""The stress for exactly once: short runs, in which something dies, and its own options."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from runs import run_python

from tools.stress import exactly_once, options
from tools.stress.lots import Lots


def run(tmp_path: Path, *options: str) -> Any:
    """Return the counts of a run that held."""
    found = tmp_path / "found.json"
    result = run_python("-m", "tools.stress", "--exactly-once", "--json", found, *options, timeout_s=580)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(found.read_text())
    assert report["held"]
    return report["counts"]


def test_a_fixed_sample(tmp_path: Path, apache_kafka: None) -> None:
    counts = run(tmp_path, "--runs", "2", "--seed", "4")
    assert counts["micro-batches"] + counts.get("decided before the driver died", 0) == 2
    assert sum(count for what, count in counts.items() if "killed" in what) > 0


@pytest.mark.timeout(600)
def test_a_fixed_sample_of_spark(tmp_path: Path, apache_kafka: None) -> None:
    """By the lots of this seed workers and a sender die; no driver, since each of its starts takes ten seconds."""
    deaths = {"driver": 0, "worker": 0.3, "sender": 0.3}
    chances = [each for what, chance in deaths.items() for each in (f"--kill-{what}", str(chance))]
    chances += ["--fail-task", "0", "--slow-task", "0"]
    counts = run(tmp_path, "--spark", "local", "--runs", "1", "--tasks", "2", *chances, "--seed", "5")
    assert counts["micro-batches"] == 1
    # Which of them reach the drawn line depends on the code.
    assert sum(count for what, count in counts.items() if "killed" in what) > 0, counts


def test_the_nth_process_at_a_step_draws_the_same_in_every_run_with_a_seed(tmp_path: Path) -> None:
    def lots(name: str, seed: int = 7) -> Lots:
        (tmp_path / name).mkdir()
        return Lots(str(tmp_path / name), seed, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)

    first, again, other = lots("a"), lots("b"), lots("c", seed=8)
    drawn = [first.draw("task").random() for _ in range(5)]
    assert len(set(drawn)) == 5
    with multiprocessing.get_context("fork").Pool(1) as another_process:
        assert another_process.apply(again.draw, ("task",)).random() == drawn[0]
    assert [again.draw("task").random() for _ in range(4)] == drawn[1:]
    assert other.draw("task").random() != drawn[0]
    assert first.draw("rows").random() != drawn[0]


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
        exactly_once.parse(arguments)
    assert message in capsys.readouterr().err


def test_spark_needs_exactly_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--spark", "local"])
    assert "--spark needs --exactly-once" in capsys.readouterr().err
