"""The command line, used well and not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.benchmark.cases import CASES
from tools.benchmark.main import main
from tools.benchmark.measuring import in_turn
from tools.benchmark.options import parse

ROOT = Path(__file__).resolve().parents[3]


def test_cases_by_number_and_name() -> None:
    assert parse(["--case", "latency", "1", "2"]).cases == ["records", "columns", "latency"]
    assert parse(["--all"]).cases == list(CASES)
    assert parse(["--smoke"]).cases == list(CASES)
    assert parse(["--smoke", "--case", "limits"]).cases == ["limits"]


def test_numbers_are_those_of_the_document() -> None:
    assert [make.number for make in CASES.values()] == list(range(1, len(CASES) + 1))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("", "nothing to do: say --all"),
        ("--case nonsense", "there is no case 'nonsense'; the cases are: 1 records, 2 columns"),
        ("--case 0", "there is no case '0'"),
        ("--all --case 1", "--all takes in every case"),
        ("--all --rounds 0", "'0' is not a whole number above 0"),
        ("--all --scale x", "'x' is not a number above 0"),
        ("--from /nowhere/x.json", "there is no such file; --all --json FILE makes one"),
        ("--from /etc/hostname --all", "--from FILE measures nothing"),
        ("--all --json /nowhere/x.json", "there is no such directory"),
        ("--all --plots /nowhere", "there is no such directory"),
        ("--all --document /nowhere.md", "there is no such file"),
    ],
)
def test_misused(arguments: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_list() -> None:
    command = [sys.executable, ROOT / "tools" / "bench.py", "--list"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "1  records: One process, record by record" in out
    assert "     4 tasks of 1,000,000 rows: shmaccum; confluent-kafka; kafka-python; Spark's JVM sink" in out


def test_not_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert main(["--from", str(other)]) == 2
    assert "is not a result" in capsys.readouterr().err


def test_everybody_begins_some_rounds() -> None:
    assert [in_turn("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert in_turn("abc", 1) == ["b", "c", "a"]
