"""Short runs of the stress for exactly once: all that is visible is there once, and something did die."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runs import run_python


def run(tmp_path: Path, *options: str) -> Any:
    """Return the counts of a run that held."""
    found = tmp_path / "found.json"
    result = run_python("-m", "tools.stress", "--exactly-once", "--json", found, *options, timeout_s=580)
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(found.read_text())
    assert report["held"]
    return report["counts"]


def test_a_fixed_sample(tmp_path: Path, apache_kafka: None) -> None:
    counts = run(tmp_path, "--runs", "4", "--seed", "15")
    assert counts["micro-batches"] + counts.get("decided before the driver died", 0) == 4
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
