"""A short run of the stress for exactly once: all that is visible is there once, and something did die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_fixed_sample(tmp_path: Path, apache_kafka: None) -> None:
    found = tmp_path / "found.json"
    command = ["--exactly-once", "--runs", "6", "--seed", "15", "--json", str(found)]
    result = subprocess.run(
        [sys.executable, "-m", "tools.stress", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(found.read_text())
    assert report["held"]
    assert report["counts"]["micro-batches"] + report["counts"].get("decided before the driver died", 0) == 6
    assert sum(count for what, count in report["counts"].items() if "killed" in what) > 0
