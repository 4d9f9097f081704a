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
    WRONG_RECORD_SENT = "assertion violated ((first!=0)&&(rank"
    WRONG_RECORD_BEHIND_SENT = "assertion violated ((last!=0)&&(rank"
    SEQUENCE_GAP = "assertion violated 0"
    RECORD_LOST = "assertion violated (logged==commits)"
    CHAIN_TORN = "assertion violated ( !(slot[b].is_chain)||(slot[(slot[b].next-1)].record"
    NO_CHAIN = "assertion violated (slot[s].next>0)"
    SLOT_LEAKED = "assertion violated ((slot[s].state==0)&&is_free"
    WRONGLY_TOLD = "assertion violated ((!q_full(ring"
    WAITS_FOR_EVER = "invalid end state"
    TWO_OWNERS = "assertion violated (batch_of["
    CHAIN_CUT = "assertion violated (slot[at].chain>0)"
    READ_OUTSIDE = "assertion violated ((slot[s].chain>0)&&(batch_of["
    WRITTEN_OUTSIDE = "assertion violated ((slot[1].state==2)&&(batch_of["
    WRONG_BATCH_GROWN = "assertion violated (slot[1].generation=="
    WAITER_OVERTAKEN = "assertion violated  !(((waits["
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


def _pool(name: str, producers: int, records: int, slots: int, deaths: int, large: int = 0) -> Run:
    defines: dict[str, int | None] = {"P": producers, "RECORDS": records, "S": slots, "DEATHS": deaths}
    return Run(name, "pool.pml", defines | ({"LARGE": large} if large else {}))


def _growth(
    name: str, producers: int, others: int, records: int = 1, wanted: int = 1, slots: int = 3, deaths: int = 1
) -> Run:
    defines: dict[str, int | None] = {"P": producers, "T": others, "RECORDS": records, "WANTED": wanted}
    return Run(name, "growth.pml", defines | {"S": slots, "DEATHS": deaths})


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
    _lock("lock: 2 processes, 1 of them with 2 threads", 2, threads=2),
    _lock("lock: 2 processes, incarnation before byte", 2, "INCARNATION_FIRST"),
    _progress("lock: progress, 2 processes", 2),
    _progress("lock: progress, 2 processes, gate", 2, "GATE"),
    _progress("lock: progress, 2 processes, incarnation before byte", 2, "INCARNATION_FIRST"),
    _pool("pool: 2 producers, 1 record each, 2 slots, 1 death", 2, 1, 2, 1),
    _pool("pool: 2 producers, 1 record each, 1 slot, 1 death", 2, 1, 1, 1),
    _pool("pool: 1 producer, 3 records, 2 slots, 1 death", 1, 3, 2, 1),
    _pool("pool: 2 producers, 1 record each, 1 of it large, 3 slots, 1 death", 2, 1, 3, 1, large=1),
    _pool("pool: 1 producer, 3 records, 2 of them large, 3 slots, 1 death", 1, 3, 3, 1, large=2),
    _growth("growth: 2 producers, 1 other, 3 slots, 1 death", 2, 1),
    _growth("growth: 1 producer, 2 others, 3 slots, 1 death", 1, 2),
    _growth("growth: 1 producer, 2 records, 2 others' chains, 4 slots, 1 death", 1, 2, records=2, wanted=2, slots=4),
    _once("exactly once: 2 drivers, 2 micro-batches, 2 attempts", 2),
    _left("exactly once: 1 driver, 4 attempts, none is left open"),
)
"""For every change: about a minute."""

_FULL = (
    _lock("lock: 3 processes", 3),
    _lock("lock: 2 processes, gate, clean-up", 2, "GATE", "REAP"),
    _lock("lock: 2 processes, 1 of them with 2 threads, gate", 2, "GATE", threads=2),
    _progress("lock: progress, 3 processes", 3),
    _progress("lock: progress, 3 processes, gate", 3, "GATE"),
    _pool("pool: 2 producers, 1 record each, 2 slots, 2 deaths", 2, 1, 2, 2),
    _pool("pool: 2 producers, 2 records each, 2 slots, 1 death", 2, 2, 2, 1),
    _pool("pool: 1 producer, 3 records, 2 slots, 3 deaths", 1, 3, 2, 3),
    _pool("pool: 2 producers, 1 record each, 1 of it large, 3 slots, 2 deaths", 2, 1, 3, 2, large=1),
    _growth("growth: 2 producers, 2 others, 3 slots, 1 death", 2, 2),
    _growth("growth: 2 producers, 2 others' chains, 4 slots, 1 death", 2, 2, wanted=2, slots=4),
    _growth("growth: 2 producers, 1 other, 3 slots, 3 deaths", 2, 1, deaths=3),
    _once("exactly once: 2 attempts, 1 of them given up", 2, revokes=1),
    _once("exactly once: 2 attempts, 1 transaction expires", 2, timeouts=1),
)
FULL = tuple(replace(run, long=True) for run in _FULL)
"""Larger: many minutes, and gigabytes."""

_ONCE = _once("", 3, revokes=1)
_TWO = _lock("", 2)
_GATE = _lock("", 2, "GATE")
_THREADS = _lock("", 2, threads=2)
_POOL = _pool("", 2, 1, 2, 1)
_CHAIN = _pool("", 1, 3, 3, 1, large=2)
_GROWTH = _growth("", 2, 1)
_GROWTH_OF_ONE = _growth("", 1, 2)
_GROWTH_WITH_LEAKS = replace(_GROWTH_OF_ONE, defines=_GROWTH_OF_ONE.defines | {"LEAKS": None})

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
    # The code before there was a model: a slot that was asked about had moved on.
    *_mutants(_POOL, Property.RECORD_LOST, "RECLAIM_READ_ONCE"),
    # Slots and records.
    *_mutants(_POOL, Property.WRONG_RECORD_SENT, "STATE_BEFORE_FILL", "NEW_SEQUENCE"),
    *_mutants(_POOL, Property.WRONG_RECORD_BEHIND_SENT, "COMMIT_BEFORE_BYTES"),
    *_mutants(_POOL, Property.SEQUENCE_GAP, "PUT_BACK_LAST"),
    *_mutants(_POOL, Property.RECORD_LOST, "NO_SEQUENCE_FIX"),
    *_mutants(_POOL, Property.SLOT_LEAKED, "NO_INDEX_REBUILD"),
    *_mutants(_CHAIN, Property.CHAIN_TORN, "REBUILD_WITHOUT_CHAINS"),
    *_mutants(_CHAIN, Property.NO_CHAIN, "LINK_LAST"),
    *_mutants(_POOL, Property.WAITS_FOR_EVER, "NO_RECOVERY", "FREE_BEFORE_TELLING"),
    *_mutants(_POOL, Property.WRONGLY_TOLD, "COMPLETING_FIRST"),
    *_mutants(_pool("", 1, 1, 1, 2), Property.WRONGLY_TOLD, "TELL_AGAIN"),
    # Growth.
    *_mutants(_GROWTH_WITH_LEAKS, Property.TWO_OWNERS, "UNDER_STRIPE", "COUNT_UNDER_STRIPE", "REBUILD_ONE_SLOT"),
    *_mutants(_GROWTH, Property.CHAIN_CUT, "COUNT_BEFORE_LINK"),
    *_mutants(_GROWTH_OF_ONE, Property.CHAIN_CUT, "STATE_BEFORE_COUNT"),
    *_mutants(
        _GROWTH,
        Property.SLOT_LEAKED,
        "NO_LOOK_AT_STATE",
        "NO_LOOK_AT_COUNT",
        "COUNT_BEFORE_LOCK",
        "NO_BITMAP_REBUILD",
        "REBUILD_BY_LINKS",
    ),
    *_mutants(_GROWTH, Property.READ_OUTSIDE, "READ_BY_LINKS"),
    *_mutants(_GROWTH, Property.WRITTEN_OUTSIDE, "NO_LOOK_AGAIN"),
    *_mutants(_GROWTH_OF_ONE, Property.WRONG_BATCH_GROWN, "NO_LOOK_AT_GENERATION"),
    *_mutants(_growth("", 2, 1, wanted=2), Property.WAITER_OVERTAKEN, "WAITERS_READ_FIRST"),
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
