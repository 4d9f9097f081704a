"""The target ``sweep``: every word of a slab, with each value that breaks arithmetic.

The words are those of `regions`: all words of the superblock, and of each table the entries that say something, and
one that does not. An input is one store, while a process uses the slab, and which side of the slab goes on first. Each
operation must end within `LIMIT_S`: by an error of `shmaccum.errors`, or as if nothing had happened.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from shmaccum._core import LOCK_POOL, LOCK_STRIPES, LOCK_TABLES, WAITERS, Geometry, Slot, Super
from shmaccum.errors import ShmaccumError
from shmaccum.shm import names
from shmaccum.shm.layout import state_of
from tools.fuzz.child import Attempt, allow, try_in_child
from tools.fuzz.damage import Damage, Region, regions
from tools.fuzz.operations import Session
from tools.fuzz.slab import SlabTarget

LIMIT_S: Final = 5.0
"""Limit for an operation on a damaged slab, on a busy machine."""
_ALL_LIMIT_S: Final = 60.0
_LARGEST: Final = (1 << 64) - 1
_FLIPPED: Final = 1 << 63
VALUES: Final[dict[str, int | None]] = {
    "0": 0,
    "1": 1,
    "2^31": 1 << 31,
    "2^63-1": (1 << 63) - 1,
    "2^63": 1 << 63,
    "2^64-1": _LARGEST,
    "one less": None,
    "one more": None,
    "bit 63": None,
}
"""Name -> value to write; None if it depends on the old one."""
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

    suffix = ".json"

    @property
    def geometry(self) -> Geometry:
        """The layout of the slabs."""
        return self._image.geometry

    def plans(self, region: str | None = None) -> Iterator[bytes]:
        """Yield all plans, or those of one region, in the order of the words."""
        for where in words_of(self._image.geometry, self._image.memory):
            if region not in (None, where[0]):
                continue
            for value in VALUES:
                for scene in SCENES:
                    yield json.dumps([*where, value, scene]).encode()

    def make(self, rng: random.Random) -> bytes:
        """Return one of them."""
        where = rng.choice(list(words_of(self._image.geometry, self._image.memory)))
        return json.dumps([*where, rng.choice(list(VALUES)), rng.choice(list(SCENES))]).encode()

    def try_all(self, plans: Iterable[bytes]) -> Iterator[Attempt]:
        """Follow plans, each with the restored slab."""
        for plan in plans:
            self._begin()
            outcome, wrong = try_in_child(partial(self._overwrite, *json.loads(plan)), _ALL_LIMIT_S)
            yield Attempt(plan, outcome, wrong)

    def _overwrite(self, name: str, entry: int, word: str | int, value: str, scene: str) -> str:
        session = Session(self._image)
        before, parts = SCENES[scene]
        for step in before:
            session.do(step)
        words = [at for at, _ in Damage(name, entry, word, 0).stores(self._image.geometry)]
        try:
            if not any(self._store(at, value) for at in words):
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

    def _store(self, word: int, value: str) -> bool:
        """Overwrite a word of the segment's file; False if it says so already."""
        with Path(names.segment_path(self._image.config.shmaccum_name)).open("r+b", buffering=0) as file:
            file.seek(8 * word)
            now = int.from_bytes(file.read(8), "little")
            number = VALUES[value]
            if number is None:
                changed = {"one less": now - 1, "one more": now + 1, "bit 63": now ^ _FLIPPED}
                number = changed[value] & _LARGEST
            file.seek(8 * word)
            file.write(number.to_bytes(8, "little"))
        return number != now


def words_of(geometry: Geometry, memory: bytes) -> Iterator[tuple[str, int, str | int]]:
    """Yield the words to be overwritten of a slab, of which a copy is given: region, entry, name or number in it."""
    words = memoryview(memory).cast("Q")
    for name, region in regions(geometry).items():
        named = _by_number(region)
        texts = [number for number, word in named.items() if word in _TEXTS]
        for entry in _entries(name, region, words):
            for number in range(min(texts, default=region.words - 1) + 1):
                yield name, entry, named.get(number, number)


def _by_number(region: Region) -> dict[int, str]:
    return {number: word for word, number in region.names.items()}


def _entries(name: str, region: Region, words: memoryview) -> Iterable[int]:
    """Return the entries of a table that are worth it: those in use, where those are few; and one that is not."""
    match name:
        case "lock":
            return (LOCK_POOL, LOCK_TABLES, LOCK_STRIPES, LOCK_STRIPES + 3)  # the last of which a dead process holds
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
    """The results for each word: one line for all similar words of a table."""

    def __init__(self, geometry: Geometry) -> None:
        self._names = {name: _by_number(region) for name, region in regions(geometry).items()}
        self._outcomes: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def note(self, attempt: Attempt) -> None:
        """Count an input's result."""
        region, _, word, _, _ = json.loads(attempt.data)
        if isinstance(word, int):  # it belongs to the one before it that has a name
            names = self._names[region]
            word = next((f"{names[each]}.." for each in range(word, -1, -1) if each in names), "")
        outcome = attempt.outcome
        if not attempt.wrong and outcome not in (WENT_ON, THE_SAME, REMOVED):
            outcome = "damage" if "SlabDamagedError" in outcome else "another error"
        self._outcomes[region, word][outcome] += 1

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        columns = (WENT_ON, "damage", "another error", THE_SAME, REMOVED, "failed", "killed", "hung")
        yield f"{'word':32}" + "".join(f"{column:>15}" for column in columns)
        for (region, word), outcomes in sorted(self._outcomes.items(), key=lambda item: self._place_of(*item[0])):
            yield f"{f'{region} {word}':32}" + "".join(f"{outcomes[column] or '':>15}" for column in columns)

    def _place_of(self, region: str, word: str) -> tuple[int, int]:
        """Return what sorts words by their place in the slab."""
        numbers = {name: number for number, name in self._names[region].items()}
        return list(self._names).index(region), numbers.get(word.removesuffix(".."), 0)
