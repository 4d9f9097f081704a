"""What several tests of the slab and its locks look at, and do in child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import pytest
from processes import Child, Start

from shmaccum._core import COMMIT_SIZE_SHIFT, STATE_MASK, WORD, Geometry, Lock, Partition, Slot, Super, Topic
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.shm import names
from shmaccum.shm.layout import SlotState, TopicState
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.lockfile import LockFile
from shmaccum.shm.slab import Slab
from tools.support.locks import held

NUMBER = 5
"""The tested lock; any would do."""


def become(uid: int) -> None:
    """Become another user, who perhaps cannot read Python's libraries: what is needed later is imported now."""
    for module in ("multiprocessing.shared_memory", "numpy", "shmaccum.shm.inspection"):
        import_module(module)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def close_open(slab: Slab, queue: PartitionQueue) -> int:
    """Close a deque's open batch, as the next record without room would; return its slot."""
    open_at = slab.geometry.partition(queue.entry) + Partition.OPEN
    slot = slab.words[open_at] - 1
    state_at = slab.geometry.header(slot) + Slot.STATE
    slab.words[state_at] = slab.words[state_at] & ~STATE_MASK & (1 << 64) - 1 | SlotState.CLOSED
    slab.words[open_at] = 0
    return slot


def scratch(slab: Slab) -> int:
    """Return the first of a thousand words that nothing else uses here."""
    return slab.geometry.waiters // WORD


def takeovers(slab: Slab) -> int:
    taken_over: int = slab.words[slab.geometry.lock(NUMBER) + Lock.TAKEOVERS]
    return taken_over


def take(slab: Slab, timeout_s: float | None = None, number: int = NUMBER) -> None:
    """Run a section of a lock, the tested one or another."""
    slab.locks[number].run(partial(slab.rebuild, number), timeout_s)


def whats_there(name: str) -> list[str]:
    return [path for path in names.leftovers(name) if os.path.exists(path)]


def overwrite(name: str, word: int, value: int) -> int:
    """Store a word into a slab's file, as damage or another version does; return what was there."""
    with open(names.segment_path(name), "r+b") as file:
        file.seek(word * WORD)
        before = int.from_bytes(file.read(WORD), "little")
        file.seek(word * WORD)
        file.write(value.to_bytes(WORD, "little"))
    return before


class _Died(BaseException):
    """Ends an operation in the middle, as a death does: nothing behind it runs."""


class _DyingWords:
    """The words of a slab, as a process sees them that dies before a store.

    Args:
        words: of the slab.
        left: stores before that one.
    """

    def __init__(self, words: memoryview, left: int) -> None:
        self._words, self._left = words, left

    def __getitem__(self, index: Any) -> Any:
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        if not self._left:
            raise _Died
        self._left -= 1
        self._words[index] = value


def deaths_at_stores(slab: Slab, operate: Callable[[Any], object]) -> Iterator[int]:
    """Call ``operate(words)`` again and again, each time with a death one store later.

    Args:
        slab: of the test; each call finds it as it was.
        operate: stores into the words it gets, holds no lock, and cleans nothing up.

    Yields:
        The number of stores before the death, with the slab as that leaves it.
    """
    before = bytes(slab.buffer)
    for stores in range(1000):
        try:
            operate(_DyingWords(slab.words, stores))
        except _Died:
            yield stores
        else:
            assert stores > 3
            return
        slab.buffer[:] = before
    raise AssertionError("it never ends")


def holder_of(link: Connection, name: str, byte: int) -> int:
    """Return the process that holds a byte of a slab's lock file, as another process sees it."""
    lock_file = LockFile.open(name, create=False)
    try:
        return lock_file.holder(byte)
    finally:
        lock_file.close()


def leave_records(link: Connection, name: str, geometry: Geometry) -> None:
    """Leave a slab with a batch of three records for the one partition of topic "t"."""
    slab = attach(name, geometry)
    for word, value in words_of_a_batch(geometry).items():
        slab.words[word] = value
    detach(slab)


def words_of_a_batch(geometry: Geometry) -> dict[int, int]:
    """Return the words, in the order of their stores, of a batch of three records in an otherwise empty slab."""
    topic, header = geometry.topic(0), geometry.header(0)
    return {
        topic + Topic.NAME: ord("t"),
        topic + Topic.NAME_LENGTH: 1,
        topic + Topic.STATE: TopicState.REQUESTED,
        Super.TOPIC_COUNT: 1,
        geometry.partition(0) + Partition.KEY: 1 << 32,
        Super.PARTITION_COUNT: 1,
        header + Slot.COMMIT: 64 << COMMIT_SIZE_SHIFT | 3 << 1,
        header + Slot.SLOTS: 1,
        header + Slot.STATE: SlotState.CLOSED,
    }


def stay(link: Connection, name: str, geometry: Geometry | None = None) -> None:
    """Attach, send when the slab was created, and detach after the next message."""
    slab = attach(name, geometry)
    link.send(slab.words[Super.CREATED_MS])
    link.recv()
    detach(slab)


def run_where_shm_has(size: str, script: str) -> str:
    """Run a script in a mount namespace with a /dev/shm of this size; return its output."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can have a /dev/shm of its own, and not in every container")
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
    shell = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, script]
    run = subprocess.run(shell, capture_output=True, text=True, check=True, timeout=60)
    assert run.stderr == ""
    return run.stdout


def holding(start: Start, slab: Slab) -> tuple[Child, int]:
    """Start a child that holds the tested lock until it gets a message; return it, and its entry."""
    child = start(_hold, slab.name)
    return child, child.hear()


def _hold(link: Connection, name: str) -> None:
    slab = attach(name)
    with held(slab.locks[NUMBER]):
        link.send(slab.me)
        link.recv()
    detach(slab)
