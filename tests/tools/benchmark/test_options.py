"""The command line, used well and not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark_results import result, rounds, variant
from fixture_types import Capture
from runs import run_python

from tools.benchmark.__main__ import main
from tools.benchmark.cases import CASES
from tools.benchmark.options import parse
from tools.benchmark.targets import TARGETS


def test_cases_by_number_and_name() -> None:
    assert parse(["--case", "latency", "1", "2"]).cases == ["records", "columns", "latency"]
    assert parse(["--all"]).cases == list(CASES)
    assert parse(["--list"]).cases == []


def test_numbers_are_those_of_the_document() -> None:
    assert [case.number for case in CASES.values()] == list(range(1, len(CASES) + 1))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("", "one of the arguments --all --case --list --from is required"),
        ("--case nonsense", "there is no case 'nonsense'; the cases are: 1 records, 2 columns"),
        ("--all --case 1", "not allowed with argument --all"),
        ("--all --rounds 0", "--rounds has to be above 0"),
        ("--all --scale -1", "--scale above 0"),
        ("--from /nowhere/x.json", "--from: /nowhere/x.json: there is no such file"),
        ("--all --json /nowhere/x.json", "--json: /nowhere: there is no such directory"),
        ("--all --plots /nowhere", "there is no such directory"),
        ("--case 1 --regress HEAD --json x", "--regress COMMIT prints its result"),
        ("--from /etc/hostname --json x", "--from FILE measures nothing"),
        ("--case 1 --lines /etc/hostname", "only case 11 sends them"),
    ],
)
def test_misused(arguments: str, error: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert error in said
    assert said.startswith("usage: python -m tools.benchmark")


def test_list_and_targets_are_of_listed_variants(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("GET /\n")
    done = run_python("-m", "tools.benchmark", "--list", "--lines", str(log))
    assert done.returncode == 0
    assert "1  records: One process, record by record" in done.stdout
    assert (
        "     large: 4 tasks of 1,000,000 rows: shmaccum; confluent-kafka; kafka-python; Spark's JVM sink"
        in done.stdout
    )
    wanted = "     apache-lines-zstd: 4 producers of 200,000 lines of access.log, zstd, into Apache Kafka: shmaccum; "
    assert wanted in done.stdout
    for part in (each for parts in TARGETS.values() for each in parts):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"     {part.variant}: ")]
        assert any(part.peer in line and part.ours in line for line in lines), part


GOOD = result(("records", [variant("apache-unkeyed", {"shmaccum": rounds(records_per_core_s=[1.0])})]))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is not complete JSON"),
        (json.dumps(GOOD)[:-100], "is not complete JSON"),
        ("\x80\x81", "is not complete JSON"),
        ("{}", "is not a result of python -m tools.benchmark --json"),
        ("[1, 2]", "is not a result of python -m tools.benchmark --json"),
        (json.dumps(GOOD | {"format": 1}), "is of format 1, this version of the tool has 3: measure again"),
    ],
)
def test_not_a_result(text: str, error: str, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.json"
    other.write_text(text)
    assert main(["--from", str(other)]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert said.startswith(f"python -m tools.benchmark: {other}")


def test_a_result_again(tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps(GOOD))
    assert main(["--from", str(other)]) == 0
    assert "title of apache-unkeyed" in capsys.readouterr().out
