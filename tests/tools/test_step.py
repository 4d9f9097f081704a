"""The harness: samples of all crash points are survived, and what is broken on purpose is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixture_types import Capture
from runs import run_python

from shmaccum._core import LOCK_POOL, Lock, Partition, Process, Slot, Super, Topic
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.sender.log.segments import RecentBatches
from shmaccum.shm.files import open_semaphore
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.slab import Slab
from tools.step.__main__ import main
from tools.step.checker import violations
from tools.step.operation import Operation
from tools.step.operations import OPERATIONS
from tools.step.run import Findings, Harness, Way
from tools.step.settings import HALF, PARTITIONS, config_of
from tools.step.survivor import Survivor
from tools.step.victim import Victim

# --- points of all operations ---------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("way", "sample"), [((), 1), (("--stop",), 1), (("--pairs",), 2)], ids=["killed", "stopped", "pairs"]
)
def test_every_operation_may_end_anywhere(way: tuple[str, ...], sample: int) -> None:
    """Some points of each, always the same ones. All of them: ``make prove``."""
    command = ("-m", "tools.step", *way, "--sample", str(sample), "--seed", "0")
    ran = run_python(*command, timeout_s=800)
    print(ran.stdout, ran.stderr, f"all of it again: python {' '.join(command)}")
    assert ran.returncode == 0


# --- what is broken is found ------------------------------------------------------------------------------------------


def findings_of(operation: Operation, sample: int = 0, way: Way = Way.KILL) -> Findings:
    with Harness(jobs=4) as harness:
        (findings,) = harness.run([operation], lambda done, total: None, sample, way=way)
    return findings


def problems_of(findings: Findings) -> str:
    return "\n".join(problem for outcome in findings.failed for problem in outcome.problems)


def lie(victim: Victim) -> Callable[[], object]:
    victim.account.will_append([(0, "never")])
    victim.account.has_appended()
    return lambda: None


def say_less(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    accumulator.append(PARTITIONS[0], 0, None, b"unknown")
    return lambda: None


def end(victim: Victim) -> Callable[[], object]:
    os._exit(3)


def test_the_stores_of_the_shipped_core_are_steps() -> None:
    findings = findings_of(OPERATIONS["append-open"])
    stores = [
        outcome.place.split(".")[-1]
        for outcome in sorted(findings.outcomes, key=lambda outcome: outcome.plan)
        if outcome.place.startswith("store to")
    ]
    taken, committed, released = stores.index("OWNER"), stores.index("COMMIT"), len(stores) - 1
    assert stores[released] == "OWNER"
    assert taken < stores.index("CONTRIBUTORS") < committed < stores.index("RECORDS") < released
    assert problems_of(findings) == ""


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (lie, "partition 0: ['first', 'after'"),
        (say_less, "partition 0: ['first', 'unknown', 'after'"),
        (end, "the victim was not killed"),
    ],
)
def test_lost_and_foreign_records_are_found(begin: Callable[[Victim], Callable[[], object]], said: str) -> None:
    assert said in problems_of(findings_of(Operation("bad", begin)))


def test_a_table_that_keeps_its_dead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slab, "reap_dead", lambda slab: None)
    findings = findings_of(OPERATIONS["attach"], 8)
    assert "is still that of dead process" in problems_of(findings)
    assert 0 < findings.survived < len(findings.outcomes)


@pytest.mark.parametrize(("way", "sample"), [(Way.KILL, 0), (Way.PAIRS, 10)])
def test_memory_that_is_not_taken_back_from_the_dead_is_found(
    monkeypatch: pytest.MonkeyPatch, way: Way, sample: int
) -> None:
    monkeypatch.setattr(BufferPool, "_is_dead", lambda pool, owner: False)
    assert "is allocated to dead process entry" in problems_of(findings_of(OPERATIONS["allocate"], sample, way))


def test_a_batch_that_is_stored_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecentBatches, "find", lambda *identity: None)
    assert "'a" in problems_of(findings_of(OPERATIONS["complete"], 8))


def test_a_stopped_process_is_left_alone_and_named() -> None:
    findings = findings_of(OPERATIONS["append-open"], 8, Way.STOP)
    assert problems_of(findings) == ""
    assert 0 < findings.holding < len(findings.outcomes)


def test_a_lock_that_is_taken_from_a_stopped_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that keeps a lock for long counts as dead then."""
    monkeypatch.setattr(ProcessTable, "is_dead", lambda processes, ticket: ticket != processes.ticket)
    assert problems_of(findings_of(OPERATIONS["append-open"], way=Way.STOP))


def test_memory_that_is_taken_from_a_stopped_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BufferPool, "_is_dead", lambda pool, owner: owner != pool.slab.owner_tag)
    assert problems_of(findings_of(OPERATIONS["append-new"], 8, Way.STOP))


def test_an_error_that_does_not_name_the_stopped_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlabLock, "_describe_holder", lambda lock: "a process holds it")
    assert "does not name process" in problems_of(findings_of(OPERATIONS["append-open"], way=Way.STOP))


# --- the checker --------------------------------------------------------------------------------------------------


@pytest.fixture
def survivor(slab_name: str, tmp_path: Path) -> Iterator[Survivor]:
    """A slab with a batch that is closed and an open one in partition 0."""
    survivor = Survivor(config_of(slab_name, tmp_path, {}))
    survivor.settle_in()
    for text in ("a", "b"):
        survivor.append(0, text, HALF + 200)
    slab = survivor.slab
    before = bytes(slab.buffer)
    yield survivor
    slab.buffer[:] = before
    survivor.deliver()
    survivor.leave()


def first_header(slab: Slab) -> int:
    """Word index of the header of partition 0's first batch."""
    return slab.geometry.header(slab.words[slab.geometry.partition(0) + Partition.HEAD] - 1)


NOT_WHOLE: list[tuple[Callable[[Slab], int], int, str]] = [
    (lambda slab: slab.geometry.lock(LOCK_POOL) + Lock.OWNER, 3, "lock 0 has the owner word 3"),
    (lambda slab: slab.geometry.process(3) + Process.STATE, 1, "process entry 3 is still that of dead process"),
    (lambda slab: slab.geometry.process(3) + Process.FLUSHING, 1, "process entry 3: FLUSHING is 1"),
    (lambda slab: Super.WAITER_TAIL, 1, "1 tickets wait for memory"),
    (lambda slab: slab.geometry.topic(0) + Topic.STATE, 0, "topic entry 0"),
    (lambda slab: slab.geometry.topic(0) + Topic.PARTITIONS, 3, "1 of which are not there"),
    (lambda slab: slab.geometry.partition(0) + Partition.KEY, 1 << 32 | 1, "partition entries have the keys"),
    (lambda slab: first_header(slab) + Slot.MAX_TIMESTAMP, 5, "its largest timestamp is not 5"),
]
"""A word, what stands in it, and what is said of it. `test_oracle.py` has what the headers say of the indexes."""


def test_a_slab_that_is_not_whole(survivor: Survivor) -> None:
    words = survivor.slab.words
    for index_of, value, said in NOT_WHOLE:
        index = index_of(survivor.slab)
        kept, words[index] = words[index], value
        assert said in "\n".join(violations(survivor.accumulator))
        words[index] = kept
        assert violations(survivor.accumulator) == []


def test_memory_of_the_dead_is_found(survivor: Survivor) -> None:
    survivor.have_died(lambda accumulator: accumulator.pool.allocate(1, 0))
    survivor.slab.reap_dead()
    assert "is allocated to dead process entry" in "\n".join(violations(survivor.accumulator))


def test_a_semaphore_that_is_taken(survivor: Survivor) -> None:
    semaphore = open_semaphore(survivor.slab.private.pool_semaphore())
    semaphore.acquire()
    assert violations(survivor.accumulator) == ["the pool's semaphore is 0, not 1"]
    semaphore.release()
    semaphore.close()


def test_a_batch_in_flight_with_the_place_of_another_is_found(survivor: Survivor) -> None:
    words, geometry = survivor.slab.words, survivor.slab.geometry
    slot = words[geometry.partition(0) + Partition.HEAD] - 1
    survivor.slab.deques.take_first(0, slot, words[geometry.header(slot) + Slot.LIMITS])
    assert violations(survivor.accumulator) == []
    words[geometry.header(slot) + Slot.POSITION] += 1
    assert "has the positions" in "\n".join(violations(survivor.accumulator))


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command(capsys: Capture) -> None:
    assert main(["--operation", "allocate", "--jobs", "2"]) == 0
    printed = capsys.readouterr()
    (row,) = (line.split() for line in printed.out.splitlines() if line.startswith("allocate"))
    instructions, stores, points, holding, survived = (int(number.replace(",", "")) for number in row[1:6])
    assert (points, survived, holding) == (instructions + stores + 2, points, 0)
    assert f"{points - 2} of {points - 2} points" in printed.err
    assert not [entry for entry in os.listdir("/dev/shm") if f"step{os.getpid()}" in entry]


def test_the_command_says_what_was_not_survived(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(Slab, "reap_dead", lambda slab: None)
    assert main(["--operation", "allocate", "--sample", "12", "--seed", "1"]) == 1
    printed = capsys.readouterr().out
    assert "killed before store to" in printed
    assert "--seed 1" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--operation", "nothing"], "invalid choice: 'nothing'"),
        (["--sample", "0"], "'0' is not a whole number above 0"),
        (["--jobs", "many"], "'many' is not a whole number above 0"),
        (["--seed", "1"], "--seed is for --sample"),
    ],
)
def test_misuse(arguments: list[str], said: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert said in capsys.readouterr().err
