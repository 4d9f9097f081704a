"""The stress for exactly once: a short run, in which something dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    counts = run(tmp_path, "--runs", "2", "--seed", "4")
    assert counts["micro-batches"] + counts.get("decided before the driver died", 0) == 2
    assert sum(count for what, count in counts.items() if "killed" in what) > 0
