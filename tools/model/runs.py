"""The runs: the models in several sizes, and mutants, each with the property that it must violate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Property(StrEnum):
    """What can be violated, as `pan` reports it. A model's assertions differ in their first words."""

    TWO_INSIDE = "assertion violated (believer==0)"
    GATE_SHUT = "assertion violated ((taken||unit_lost)"
    UNITS_PILE_UP = "assertion violated (gate<="
    NAMED_ENTRY_FREED = "assertion violated  !(( !(((owner"
    HALF_DONE_SEEN = "assertion violated  !(half_done)"
    NO_PROGRESS = "non-progress cycle"
    DECIDED_AND_LOST = "assertion violated (0>timeouts)"
    VISIBLE_TWICE = "assertion violated (visible[k]<="
    DONE_AND_NOT_VISIBLE = "assertion violated ((visible["
    LEFT_OPEN = "assertion violated ((done<"


@dataclass(frozen=True)
class Run:
    """One run of spin.

    Attributes:
        name: what to call it by.
        model: file name of the model.
        defines: its size and mutation, as the C preprocessor takes them.
        progress: look for cycles without progress, under weak fairness, rather than for wrong states.
        violates: the property that a mutant must be found to violate; None for a model that must hold.
        long: worth an optimizing compiler, which takes ten times as long as a plain one.
    """

    name: str
    model: str
    defines: dict[str, int | None] = field(default_factory=dict)
    progress: bool = False
    violates: Property | None = None
    long: bool = False


def _lock(name: str, processes: int, *options: str, threads: int = 1) -> Run:
    defines: dict[str, int | None] = {"N": processes, "THREADS": threads}
    return Run(name, "lock.pml", defines | dict.fromkeys(options))


def _progress(name: str, processes: int, *options: str, deaths: int = 1) -> Run:
    defines: dict[str, int | None] = {"N": processes, "DEATHS": deaths, "STOPS": 1, "WHIMS": 1, "LIVE": None}
    return Run(name, "lock.pml", defines | dict.fromkeys(options), progress=True)


def _once(name: str, attempts: int, revokes: int = 0, timeouts: int = 0) -> Run:
    defines: dict[str, int | None] = {"ATTEMPTS": attempts, "REVOKES": revokes, "TIMEOUTS": timeouts}
    return Run(name, "exactly_once.pml", defines)


def _left(name: str) -> Run:
    return Run(name, "exactly_once.pml", {"D": 1, "REVOKES": 0, "ATTEMPTS": 4, "I": 3, "LEFT": None})


def _mutants(of: Run, violates: Property, *names: str) -> list[Run]:
    return [Run(name, of.model, of.defines | {f"M_{name}": None}, of.progress, violates) for name in names]


BRIEF = (
    _lock("lock: 2 processes", 2),
    _lock("lock: 2 processes, gate", 2, "GATE"),
    _lock("lock: 2 processes, clean-up", 2, "REAP"),
    _lock("lock: 2 processes, incarnation before byte", 2, "INCARNATION_FIRST"),
    _progress("lock: progress, 2 processes", 2),
    _progress("lock: progress, 2 processes, gate", 2, "GATE"),
    _progress("lock: progress, 2 processes, incarnation before byte", 2, "INCARNATION_FIRST"),
    _once("exactly once: 2 drivers, 2 micro-batches, 2 attempts", 2),
    _left("exactly once: 1 driver, 4 attempts, none is left open"),
)
"""For every change: about a minute."""

_FULL = (
    _lock("lock: 2 processes, 1 of them with 2 threads", 2, threads=2),
    _lock("lock: 3 processes", 3),
    _lock("lock: 2 processes, gate, clean-up", 2, "GATE", "REAP"),
    _lock("lock: 2 processes, 1 of them with 2 threads, gate", 2, "GATE", threads=2),
    _progress("lock: progress, 3 processes", 3),
    _progress("lock: progress, 3 processes, gate", 3, "GATE"),
    _once("exactly once: 2 attempts, 1 of them given up", 2, revokes=1),
    _once("exactly once: 2 attempts, 1 transaction expires", 2, timeouts=1),
)
FULL = tuple(replace(run, long=True) for run in _FULL)
"""Larger: many minutes, and gigabytes."""

_ONCE = _once("", 3, revokes=1)
_TWO = _lock("", 2)
_GATE = _lock("", 2, "GATE")
_THREADS = _lock("", 2, threads=2)

MUTANTS = (
    # The word.
    *_mutants(_TWO, Property.TWO_INSIDE, "LOAD_AND_STORE", "STORE_OVER", "NO_INCARNATION"),
    *_mutants(_THREADS, Property.TWO_INSIDE, "OWN_TICKET", "LEAVE_INSIDE"),
    *_mutants(_TWO, Property.HALF_DONE_SEEN, "NO_REBUILD", "IGNORE_UNFINISHED", "NO_UNFINISHED"),
    # The gate.
    *_mutants(_GATE, Property.TWO_INSIDE, "TRUST_GATE"),
    *_mutants(_GATE, Property.UNITS_PILE_UP, "ALWAYS_POST"),
    *_mutants(_GATE, Property.GATE_SHUT, "OWN_UNIT_ONLY", "KEEP_UNIT"),
    *_mutants(_progress("", 2, "GATE"), Property.NO_PROGRESS, "GATE_ALONE"),
    # The entries of the dead.
    *_mutants(_progress("", 2), Property.NO_PROGRESS, "REUSE_NAMED"),
    *_mutants(_progress("", 3, deaths=2), Property.NO_PROGRESS, "NAMED_READ_FIRST"),
    *_mutants(_lock("", 2, "REAP"), Property.NAMED_ENTRY_FREED, "FREE_NAMED_FIRST"),
    # Exactly once from Spark.
    *_mutants(
        _ONCE,
        Property.DECIDED_AND_LOST,
        "ID_OF_TASK",
        "REUSED_EARLY",
        "LIST_AFTER_PLAN",
        "ABORT_BY_INIT",
        "NO_END_FIRST",
    ),
    *_mutants(_ONCE, Property.VISIBLE_TWICE, "OLD_GENERATION", "END_FIRST"),
    *_mutants(_ONCE, Property.DONE_AND_NOT_VISIBLE, "NO_FENCE"),
    *_mutants(_ONCE, Property.DECIDED_AND_LOST, "ABORT_NEWER"),
    *_mutants(_left(""), Property.LEFT_OPEN, "LIST_BEFORE_DECISION", "NEVER_ASKS"),
)
"""Mistakes that must be found, and how."""
