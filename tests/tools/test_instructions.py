"""Counts of instructions are exact, and too many are a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.instructions import __main__ as tool

OPERATION = "send"


COUNTING = """
import sys
from pathlib import Path
from tools.instructions.counter import Counter

def work():
    sum([1, 2, 3])

def nothing():
    pass

counter = Counter(Path(sys.argv[1]))
for call in work, nothing:
    for _ in range(100):
        counter.count(call)  # fills the interpreter's caches
print(*(counter.count(work) for _ in range(5)), counter.count(nothing))
"""


def test_a_count_is_exact_and_grows_with_the_work(tmp_path: Path) -> None:
    # In a process of its own: another thread that asks for the GIL would cost instructions.
    command = [sys.executable, "-c", COUNTING, tmp_path]
    *works, nothing = map(int, subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split())
    assert len(set(works)) == 1
    assert works[0] > nothing == 0


@pytest.mark.parametrize(("recorded", "status"), [(1 << 40, 0), (1_000, 1)])
def test_more_instructions_than_on_record_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recorded: int, status: int
) -> None:
    monkeypatch.setattr(tool, "RECORD", tmp_path / "counts.json")
    (tmp_path / "counts.json").write_text(json.dumps({tool.build(): {OPERATION: recorded}}))
    assert tool.main(["--operation", OPERATION]) == status
    printed = capsys.readouterr()
    assert f"{recorded:,}" in printed.out
    assert (OPERATION in printed.err) == bool(status)
    assert tool.main(["--operation", OPERATION, "--record"]) == 0
    assert 1_000 < json.loads((tmp_path / "counts.json").read_text())[tool.build()][OPERATION] < 1_000_000
    assert tool.main(["--operation", OPERATION]) == 0


def test_counts_of_another_build_are_compared_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "RECORD", tmp_path / "counts.json")
    (tmp_path / "counts.json").write_text(json.dumps({"another": {OPERATION: 1}}))
    assert tool.main(["--operation", OPERATION]) == 0
    assert "another" in capsys.readouterr().out
