"""The targets ``slab`` and ``sweep``: damage to the words of a slab, and operations on it.

Damage is named by words: a list that can be read, stored, and repeated. A list survives changes of the layout: names
that no longer exist are skipped. An input fails if a process that follows it crashes, hangs, takes unbounded memory, or
gets an error that is not in `shmaccum.errors`.

* ``slab``: an input is a plan: operations in order, and the point of the damage.
* ``sweep``: every word of a slab, with each value that breaks arithmetic. The words are those of `regions`: all words
  of the superblock, and of each table the entries that say something, and one that does not. An input is one store,
  while a process uses the slab, and which side of the slab goes on first. Each operation must end within `LIMIT_S`.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from shmaccum import _core as core
from shmaccum._core import WAITERS, Geometry, Slot, Super
from shmaccum.errors import ShmaccumError
from shmaccum.shm import names
from shmaccum.shm.layout import state_of
from tools.fuzz.child import Attempt, Target, allow, try_in_child
from tools.fuzz.session import OPERATIONS, Session, SlabImage
from tools.support.regions import Region, regions

_LARGEST: Final = (1 << 64) - 1


_WEIGHTS: Final = {
    "super": 5, "settings": 1, "lock": 2, "process": 4, "topic": 3, "partition": 8, "lane": 2, "incident": 1,
    "broker": 1, "histogram": 1, "waiter": 1, "completion": 1, "bitmap": 2, "slot": 12, "memory": 2,
}  # fmt: skip


class Damage(NamedTuple):
    """One word overwritten, or with ``word`` "*" a whole entry by random ones; "**" the whole table."""

    region: str
    entry: int
    word: str | int
    """By name, or, without one, by its number in the entry."""
    value: int
    """The value to write, or the seed of the random words."""

    def stores(self, geometry: Geometry) -> Iterator[tuple[int, int]]:
        """Yield its stores: index of the word, value."""
        region = regions(geometry).get(self.region)
        if region is None or self.entry >= region.entries:
            return
        at = region.start + self.entry * region.words
        if self.word in ("*", "**"):
            rng = random.Random(self.value)
            end = at + region.words if self.word == "*" else region.start + region.entries * region.words
            for index in range(at, end):
                yield index, rng.getrandbits(64)
            return
        offset = region.names.get(self.word) if isinstance(self.word, str) else self.word
        if offset is not None and offset < region.words:
            yield at + offset, self.value


def random_damage(rng: random.Random, geometry: Geometry, memory: bytes) -> list[Damage]:
    """Return some damage to a slab, of which a copy is given: mostly to words in use, nearly valid or extreme."""
    there = regions(geometry)
    words = memoryview(memory).cast("Q")
    return [_one(rng, there, words) for _ in range(rng.choice((1, 1, 1, 2, 3, 8)))]


def _one(rng: random.Random, there: dict[str, Region], words: memoryview) -> Damage:
    name = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    region = there[name]
    while region.entries == 0:
        name, region = rng.choice(list(there.items()))
    # The first entries are those in use.
    entry = rng.randrange(region.entries if rng.random() < 0.3 else min(region.entries, 8))
    if rng.random() < 0.04:
        return Damage(name, entry, rng.choice(("*", "*", "**")), rng.getrandbits(32))
    named: list[str | int] = [*region.names] or [*range(region.words)]
    word = rng.choice(named) if rng.random() < 0.95 else rng.randrange(region.words)
    at = region.start + entry * region.words + (region.names[word] if isinstance(word, str) else word)
    return Damage(name, entry, word, _value(rng, words, at))


def _value(rng: random.Random, words: memoryview, at: int) -> int:
    now: int = words[at]
    shift = 8 * rng.randrange(8)
    neighbour = max(0, min(at + rng.choice((-32, -16, -1, 1, 16, 24, 32)), len(words) - 1))
    return rng.choice(
        (
            rng.getrandbits(64),
            rng.randrange(40),
            1 << rng.randrange(64),
            (1 << rng.randrange(1, 65)) - 1,
            now ^ 1 << rng.randrange(64),
            int(words[neighbour]),
            (now + rng.choice((-2, -1, 1, 2, 3))) & _LARGEST,
            rng.choice((0, _LARGEST, 1 << 63, (1 << 63) - 1, 1 << 32)),
            # One field of a packed word: its bytes, one by one.
            now & ~(0xFF << shift) | rng.getrandbits(8) << shift,
        )
    )


# --- slab -----------------------------------------------------------------------------------------------

DAMAGE: Final = "damage"
"""Marks the damage among a plan's steps."""
_WEIGHTY: Final = ("serve", "send", "send", "drain", "drain", "complete", "append")


class SlabTarget(Target):
    """Damages slabs; use as a context manager."""

    _limit_s: float | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._image = SlabImage(f"fuzz-{os.getpid()}", self.directory).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._image.__exit__()
        super().__exit__()

    def make(self, rng: random.Random) -> bytes:
        steps = [rng.choice((*OPERATIONS, *_WEIGHTY)) for _ in range(rng.randint(1, 5))]
        # Most damage that is there at an attach is refused then: have it come later as a rule.
        before = 0 if rng.random() < 0.25 else rng.randrange(1, len(steps) + 1) if len(steps) > 1 else 1
        if before == len(steps):
            steps.append(rng.choice(OPERATIONS))
        steps.insert(before, DAMAGE)
        damage = random_damage(rng, self._image.geometry, self._image.memory)
        return json.dumps({"steps": steps, "damage": damage}).encode()

    def try_all(self, plans: Iterable[bytes]) -> Iterator[Attempt]:
        """Follow plans, each with the restored slab and no log."""
        for plan in plans:
            self._image.restore()
            for path in self.directory.rglob("*.log"):
                path.unlink()
            yield Attempt(plan, *try_in_child(partial(self._follow, json.loads(plan)), self._limit_s))

    def _follow(self, plan: Any) -> str:
        session = Session(self._image)
        outcomes = []
        for step in plan["steps"]:
            if step == DAMAGE:
                with suppress(FileNotFoundError):  # the plan has had it removed
                    for damage in plan["damage"]:
                        for word, value in Damage(*damage).stores(self._image.geometry):
                            self._overwrite(word, lambda _, value=value: value)  # type: ignore[misc]
                continue
            try:
                session.do(step)
                outcomes.append("done")
            except ShmaccumError as error:
                outcomes.append(type(error).__name__)
        return " ".join(outcomes)

    def _overwrite(self, word: int, change: Callable[[int], int]) -> bool:
        """Change a word of the segment's file, which mappings show at once; return whether that made a difference.

        Raises:
            FileNotFoundError: the slab has been removed.
        """
        with Path(names.segment_path(self._image.config.shmaccum_name)).open("r+b", buffering=0) as file:
            file.seek(8 * word)
            now = int.from_bytes(file.read(8), "little")
            changed = change(now) & _LARGEST
            file.seek(8 * word)
            file.write(changed.to_bytes(8, "little"))
        return changed != now


# --- sweep ----------------------------------------------------------------------------------------------

LIMIT_S: Final = 5.0
"""Limit for an operation on a damaged slab, on a busy machine."""
VALUES: Final[dict[str, Callable[[int], int]]] = {
    "0": lambda now: 0,
    "1": lambda now: 1,
    "2^31": lambda now: 1 << 31,
    "2^63-1": lambda now: (1 << 63) - 1,
    "2^63": lambda now: 1 << 63,
    "2^64-1": lambda now: _LARGEST,
    "one less": lambda now: now - 1,
    "one more": lambda now: now + 1,
    "bit 63": lambda now: now ^ 1 << 63,
}
"""Name -> the value to write, by the old one."""
SCENES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "producer": (("send", "drain"), ("produce", "deliver")),
    "sender": (("send", "serve", "send", "drain"), ("deliver", "produce")),
    "newcomer": ((), ("produce", "deliver")),
}
"""Who meets the damage first: what is done before it, and which side of the slab goes on."""
WENT_ON: Final = "went on"
THE_SAME: Final = "said so already"
REMOVED: Final = "removed before"
_USUAL: Final = frozenset(("BufferExhaustedError", "KafkaTimeoutError", "ResultTimeoutError"))
"""Errors of a session on an undamaged slab, whose waits for memory and for a sender are short."""
_PRODUCE: Final = (
    "send", "send_batch", "send_large", "allocate", "wait_for_memory", "append_columns", "poll", "flush",
    "send_to_new_topic", "metrics",
)  # fmt: skip
_DELIVER: Final = (
    "serve", "ready", "drain", "complete", "drain", "reenqueue", "keep_house", "expire", "recover", "serve",
)  # fmt: skip
_PARTS: Final = {"produce": _PRODUCE, "deliver": _DELIVER}
_TEXTS: Final = ("NAME", "TEXT", "ID", "ADDRESS", "BUCKETS")
"""Where in an entry a text begins, or what is as uniform, of which only the first word is overwritten."""
_LAST: Final = ("rebuild", "status", "close")


class SweepTarget(SlabTarget):
    """Overwrites words of slabs, one by one; use as a context manager."""

    _limit_s = 60.0

    def plans(self) -> Iterator[bytes]:
        """Yield all plans, in the order of the words."""
        for where in words_of(self._image.geometry, self._image.memory):
            for value in VALUES:
                for scene in SCENES:
                    yield json.dumps([*where, value, scene]).encode()

    def make(self, rng: random.Random) -> bytes:
        return rng.choice(list(self.plans()))

    def _follow(self, plan: Any) -> str:
        name, entry, word, value, scene = plan
        session = Session(self._image)
        before, parts = SCENES[scene]
        for step in before:
            session.do(step)
        words = [at for at, _ in Damage(name, entry, word, 0).stores(self._image.geometry)]
        try:
            if not any(self._overwrite(at, VALUES[value]) for at in words):
                return THE_SAME
        except FileNotFoundError:  # any other producer of this user may remove a slab that is empty and deserted
            return REMOVED
        errors: set[str] = set()
        for step in (*(step for part in parts for step in _PARTS[part]), *_LAST):
            allow(LIMIT_S)
            try:
                session.do(step)
            except ShmaccumError as error:
                errors.add(type(error).__name__)
        return " ".join(sorted(errors - _USUAL)) or WENT_ON


def words_of(geometry: Geometry, memory: bytes) -> Iterator[tuple[str, int, str | int]]:
    """Yield the words to be overwritten of a slab, of which a copy is given: region, entry, name or number in it."""
    words = memoryview(memory).cast("Q")
    for name, region in regions(geometry).items():
        named = {number: word for word, number in region.names.items()}
        texts = [number for number, word in named.items() if word in _TEXTS]
        for entry in _entries(name, region, words):
            for number in range(min(texts, default=region.words - 1) + 1):
                yield name, entry, named.get(number, number)


def _entries(name: str, region: Region, words: memoryview) -> Iterable[int]:
    """Return the entries of a table that are worth it: those in use, where those are few; and one that is not."""
    match name:
        case "lock":  # a dead process holds the last of these
            return core.LOCK_POOL, core.LOCK_TABLES, core.LOCK_STRIPES, core.LOCK_STRIPES + 3
        case "waiter":
            head, tail = words[Super.WAITER_HEAD], words[Super.WAITER_TAIL]
            return sorted({ticket % WAITERS for ticket in (head, tail, tail + 1)} | {WAITERS - 1})
        case "completion":
            return range(min(4, region.entries))
        case "memory":
            return ()  # bytes of records
        case "slot":
            return _one_of_each(region, words)
    used = [entry for entry in range(region.entries) if words[region.start + entry * region.words]]
    # Behind those in use is the one that comes into use next: of a process table, by the process that meets the damage.
    return sorted({*used[:1], *used[-1:], *range(len(used), region.entries)[:2]})


def _one_of_each(region: Region, words: memoryview) -> Iterable[int]:
    """Return slots, one in each state and of each length, and what follows the first free one."""
    found: dict[tuple[int, int], int] = {}
    for slot in range(region.entries):
        header = region.start + slot * region.words
        state = state_of(words[header + Slot.STATE])
        found.setdefault((state, words[header + Slot.SLOTS] & 3 if state else 0), slot)
    return sorted(found.values())


class Table:
    """The results for each word: one line for all similar words of a table, and one for those without a name."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def note(self, attempt: Attempt) -> None:
        region, _, word, _, _ = json.loads(attempt.data)
        outcome = attempt.outcome
        if not attempt.wrong and outcome not in (WENT_ON, THE_SAME, REMOVED):
            outcome = "damage" if "SlabDamagedError" in outcome else "another error"
        self._outcomes[f"{region} {word if isinstance(word, str) else '..'}"][outcome] += 1

    def lines(self) -> Iterator[str]:
        """Yield the lines to print, in the order of the words that were tried."""
        columns = (WENT_ON, "damage", "another error", THE_SAME, REMOVED, "failed", "killed", "hung")
        yield f"{'word':32}" + "".join(f"{column:>15}" for column in columns)
        for word, outcomes in self._outcomes.items():
            yield f"{word:32}" + "".join(f"{outcomes[column] or '':>15}" for column in columns)
