"""The command itself: it runs, its figures are complete, and it leaves nothing behind, also when it is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait_until
from tool_runs import ToolRun

from shmaccum.shm import names
from tools.benchmark.__main__ import main
from tools.benchmark.results import incomplete

PATIENCE_S = 120.0


class Bench(ToolRun):
    """The benchmark, started."""

    def __init__(self, directory: Path, arguments: str) -> None:
        super().__init__("benchmark", directory, *arguments.split())

    def left(self) -> list[object]:
        """Return the processes, files in /dev/shm and temporary files that are left of it."""
        slabs = [path for path in Path(names.SHM_DIRECTORY).iterdir() if f"bench-{self.process.pid}-" in path.name]
        return [*self.started(), *slabs, *self.files()]


@pytest.fixture
def runs() -> Iterator[list[Bench]]:
    """A list for what is started: it is killed if the test fails."""
    runs: list[Bench] = []
    yield runs
    for run in runs:
        run.kill()


@pytest.mark.timeout(180)
def test_a_smoke_run(runs: list[Bench], tmp_path: Path) -> None:
    """The cases that need no Java, of which CI runs the smoke run as a whole."""
    runs.append(Bench(tmp_path, "--smoke --case producers limits calls start"))
    status, out, errors = runs[0].end(PATIENCE_S)
    assert status == 0, out + errors
    result = runs[0].result()
    assert incomplete(result) == []
    assert [case["name"] for case in result["cases"]] == ["producers", "limits", "calls", "start"]
    (trickle,) = [each for each in result["cases"][0]["variants"] if each["name"] == "trickle"]
    connections = {name: each["summary"]["connections"][1] for name, each in trickle["contestants"].items()}
    assert connections["shmaccum"] < connections["confluent-kafka"] == 8
    assert "How far from the limit" in out
    assert "case 7, limits" in errors
    assert runs[0].left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(runs: list[Bench], tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a turn: workers, the sender and the sink go with it."""
    runs.append(Bench(tmp_path, "--case producers"))
    wait_until(lambda: len(runs[0].started()) >= 4)
    runs[0].process.send_signal(number)
    status, _, errors = runs[0].end(PATIENCE_S)
    assert (status, "interrupted: nothing was measured yet" in errors) == (130, True), errors
    assert runs[0].left() == []


def test_interrupted_with_something_to_keep(runs: list[Bench], tmp_path: Path) -> None:
    runs.append(Bench(tmp_path, "--case limits --scale 0.1"))
    wait_until((tmp_path / "result.json").exists)
    runs[0].process.send_signal(signal.SIGINT)
    status, _, errors = runs[0].end(PATIENCE_S)
    assert (status, "result.json has what was measured" in errors) == (130, True), errors
    assert runs[0].left() == []
    assert main(["--from", str(tmp_path / "result.json")]) == 0
