"""The command: a short run with kills holds, and whatever ends it, it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixture_types import Capture
from producers import settings_of, wait_until
from runs import run_python
from tool_runs import ToolRun

from shmaccum.shm import names
from tools.stress.options import parse
from tools.stress.run import LONGEST_STOP_S, SENDER, Deed, make_plan
from tools.support.slabcheck import shared_files

END_S = 600.0


class Stress(ToolRun):
    """The stress tool, started."""

    def slab_files(self) -> list[str]:
        """Return what is left of its slabs."""
        return [path for path in names.leftovers(f"stress-{self.process.pid}") if os.path.exists(path)]


@pytest.fixture
def runs() -> Iterator[list[Stress]]:
    """A list for what is started: it is killed if the test fails."""
    runs: list[Stress] = []
    yield runs
    for run in runs:
        run.kill()
        for path in run.slab_files():
            os.unlink(path)


def run(runs: list[Stress], directory: Path, arguments: str) -> Stress:
    runs.append(Stress("stress", directory, *arguments.split()))
    return runs[-1]


def held(run: Stress) -> str:
    """Wait for the end of a run that is right; return its messages."""
    status, out, errors = run.end(END_S)
    assert (status, "All zero" in out) == (0, True), out + errors
    return errors


def nothing_is_left(run: Stress) -> None:
    assert run.started() == []
    assert run.slab_files() == []
    assert run.files() == []


SHORT = "--producers 3 --seconds 2 --kill-producers 4 --kill-sender 1 --stop 1.5 --partitions 2 --columns 0.5 --seed 5"


def test_a_short_run_with_sigterm_and_pid_namespaces(runs: list[Stress], tmp_path: Path) -> None:
    """PID namespaces need root: without it, all producers are in the one of this process."""
    short = run(runs, tmp_path, f"{SHORT} --terminate 2 --pid-namespaces {0 if os.geteuid() else 2}")
    check_short_run(short, 600)
    assert short.result()["counts"]["producers terminated"] > 0


def test_a_short_run_on_kafka(apache_kafka: None, runs: list[Stress], tmp_path: Path) -> None:
    check_short_run(run(runs, tmp_path, f"{SHORT} --transport kafka"), 200)


def check_short_run(short: Stress, least: int) -> None:
    errors = held(short)
    report = short.result()
    assert report["held"]
    assert report["problems"] == []
    counts = report["counts"]
    assert 0 < counts["producers killed"] <= 8 == counts["producers killed"] + counts.get("producers not there", 0)
    ended = counts["producers killed"] + counts.get("producers terminated", 0)
    assert 3 < counts["producers started"] <= 3 + ended  # the last ones may have no successor
    assert 0 < counts["senders killed"] < report["slab"]["senders"]
    assert report["records"]["appended"] > least
    assert report["records"]["records"] == report["records"]["appended"] + report["records"]["in_doubt_found"]
    assert report["slab"]["memory_waits"] > 0
    assert "2 s: " in errors
    nothing_is_left(short)


DAMAGED = 80
"""A byte in the first batch of a partition, behind its header."""


def test_records_are_lost(runs: list[Stress], tmp_path: Path) -> None:
    """A log that loses what it was given: the run does not hold, and keeps what there is to look at."""
    bad = run(runs, tmp_path, "--producers 1 --seconds 4 --kill-producers 0 --kill-sender 0 --stop 0 --rate 50")

    def segments() -> list[Path]:
        return [path for path in tmp_path.glob("*/log/*-0/*.log") if path.stat().st_size > DAMAGED]

    wait_until(segments, "a batch is stored")
    with segments()[0].open("r+b") as file:
        file.seek(DAMAGED)
        (byte,) = file.read(1)
        file.seek(DAMAGED)
        file.write(bytes([byte ^ 0xFF]))
    status, out, _ = bad.end(END_S)
    assert status == 1
    assert "WRONG" in out
    report = bad.result()
    assert not report["held"]
    assert report["records"]["counts"]["torn"] >= 1  # the batch, and the gap that it leaves
    assert report["records"]["counts"]["lost"] >= 1
    (kept,) = bad.files()
    assert str(kept) in out
    assert (kept / "accounts").is_dir()
    assert bad.started() == bad.slab_files() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(runs: list[Stress], tmp_path: Path, number: signal.Signals) -> None:
    """Producers, stopped ones among them, and the sender go with it."""
    interrupted = run(runs, tmp_path, "--producers 3 --seconds 60 --rate 50 --stop 5 --kill-sender 1")
    wait_until(lambda: len(interrupted.started()) >= 5)
    interrupted.process.send_signal(number)
    status, _, errors = interrupted.end(END_S)
    assert (status, "interrupted" in errors) == (130, True)
    nothing_is_left(interrupted)


def test_killed(runs: list[Stress], tmp_path: Path) -> None:
    """Its producers die with it. The sender, without users, leaves and removes the slab."""
    killed = run(runs, tmp_path, "--producers 2 --seconds 60 --rate 50 --stop 0 --kill-sender 0 --kill-producers 0")
    wait_until(lambda: any(log.stat().st_size for log in tmp_path.rglob("*.log")), "there is a sender")
    killed.process.kill()
    wait_until(lambda: not killed.started() and not killed.slab_files())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--producers 0", "0 is not between 1 and 1e+09"),
        ("--kill-sender -1", "-1 is not between 0"),
        ("--columns 1.5", "1.5 is not between 0 and 1"),
        ("--seconds nan", "nan is not between"),
        ("--pid-namespaces 5", "there are only 4 producers"),
        ("--soak --pid-namespaces 1", "--pid-namespaces is for runs without --soak only"),
    ],
)
def test_bad_arguments(arguments: str, error: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert error in capsys.readouterr().err


# --- the plan -------------------------------------------------------------------------------------------

RATES = "--producers 8 --seconds 60 --kill-producers 5 --kill-sender 0.5 --stop 1 --terminate 2 --seed"


def test_the_seed_and_the_rates_make_the_plan() -> None:
    events = make_plan(parse(f"{RATES} 1".split()))
    assert events == make_plan(parse(f"{RATES} 1".split()))
    assert events != make_plan(parse(f"{RATES} 2".split()))
    assert Counter(event.victim == SENDER for event in events if event.deed is Deed.KILL) == {False: 300, True: 30}
    stops = [event for event in events if event.deed is Deed.STOP]
    assert len(stops) == 60
    assert all(0 < event.duration_s <= LONGEST_STOP_S for event in stops)
    everyone = {SENDER, *range(8)}
    for deed in Deed:
        assert {event.victim for event in events if event.deed is deed} == everyone
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)


def test_the_spared_are_not_killed() -> None:
    options = parse(f"{RATES} 1".split())
    for spared in (2, 8):
        killed = {event.victim for event in make_plan(options, spared) if event.deed is Deed.KILL}
        assert killed == {SENDER, *range(spared, 8)}


# --- the end --------------------------------------------------------------------------------------------

# In a process of its own: whose children it all is.
COME_TO_REST = """
import json, sys
from pathlib import Path
from tools.support.processes import Children
from tools.stress.run import come_to_rest

name, messages, settings = sys.argv[1:]
children = Children(Path(messages))
figures, problems = come_to_rest(name, json.loads(settings), children)
print(json.dumps([bool(figures), problems + children.problems]))
"""


def test_the_sender_that_the_last_producer_starts_leaves_too(slab_name: str, tmp_path: Path) -> None:
    """The last sender was killed when no producer needed another."""
    settings = settings_of(slab_name, tmp_path / "log", sender_idle_ms=60_000)
    done = run_python("-c", COME_TO_REST, slab_name, tmp_path / "messages", json.dumps(settings))
    assert json.loads(done.stdout) == [True, []], done.stderr
    assert shared_files(slab_name) == []
