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
print(*(counter.count(work) for _ in range(3)), counter.count(nothing))
"""


def test_a_count_is_exact_and_grows_with_the_work(tmp_path: Path) -> None:
    # In a process of its own: another thread that asks for the GIL would cost instructions.
    command = [sys.executable, "-c", COUNTING, tmp_path]
    *works, nothing = map(int, subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split())
    assert len(set(works)) == 1
    assert works[0] > nothing == 0


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of the counts on record."""
    monkeypatch.setattr(tool, "RECORD", tmp_path / "counts.json")
    return tmp_path / "counts.json"


def test_an_operation_is_counted_and_put_on_record(record: Path) -> None:
    assert tool.main(["--operation", OPERATION, "--record"]) == 0
    assert 1_000 < json.loads(record.read_text())[tool.build()][OPERATION] < 1_000_000


@pytest.mark.parametrize(("count", "status"), [(1_000, 0), (1_050, 0), (1_051, 1)])
def test_more_instructions_than_on_record_fail(
    record: Path, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    record.write_text(json.dumps({tool.build(): {OPERATION: 1_000}}))
    assert tool.compare({OPERATION: count}, record=False) == status
    printed = capsys.readouterr()
    assert "1,000" in printed.out
    assert (OPERATION in printed.err) == bool(status)


def test_counts_of_another_build_are_compared_with_nothing(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record.write_text(json.dumps({"another": {OPERATION: 1}}))
    assert tool.compare({OPERATION: 1_000}, record=False) == 0
    assert "another" in capsys.readouterr().out
