"""Reads a slab's counts from outside, and checks that an unused slab is at rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shmaccum._core import LOCK_COUNT, WORD, Geometry, Lock, Partition, Process, Slot, Super
from shmaccum.errors import SlabError
from shmaccum.procfs import pid_namespace
from shmaccum.shm import names
from shmaccum.shm.files import open_semaphore
from shmaccum.shm.inspection import SlabView
from shmaccum.shm.layout import SlotState, state_of
from shmaccum.shm.lifecycle import look


def figures(view: SlabView) -> dict[str, int]:
    """Return a slab's counts since its creation."""
    words, geometry = view.words, view.geometry
    # Of all entries: a counter continues when another process takes the entry.
    processes = _table(view, geometry.process(0), geometry.max_processes, Process.length)
    return {
        "senders": words[Super.SENDER_STARTS],
        "records_sent": words[Super.RECORDS_SENT],
        "batches_sent": words[Super.BATCHES_SENT],
        "batches_retried": words[Super.BATCHES_RETRIED],
        "memory_waits": int(processes[:, Process.WAITS].sum()),
        "lock_takeovers": view.lock_takeovers(),
        "index_rebuilds": words[Super.REBUILDS],
        "reclaimed_slots": words[Super.RECLAIMED_SLOTS],
    }


def unrest(view: SlabView) -> list[str]:
    """Return a line for each violation in a slab that only the sender uses."""
    locks = locks_in_use(view.name, view.words, view.geometry)
    return [*_slots(view), *locks, *waiters(view.words), *_partitions(view), *_processes(view)]


def _slots(view: SlabView) -> Iterator[str]:
    words, geometry = view.words, view.geometry
    headers = _table(view, geometry.header(0), geometry.slot_count, geometry.slot_words)
    taken = Counter(SlotState(state).name for state in state_of(headers[:, Slot.STATE]).tolist() if state)
    if taken:
        yield f"slots are not free: {', '.join(f'{count} {state}' for state, count in sorted(taken.items()))}"
    start = geometry.bitmap // WORD
    with words[start : start - (-geometry.bitmap_size // WORD)] as bitmap:
        free = int.from_bytes(bitmap.tobytes()[: geometry.bitmap_size], "little").bit_count()
    if free != geometry.slot_count or words[Super.FREE_SLOTS] != geometry.slot_count:
        yield f"{geometry.slot_count} slots, but the bitmap has {free} free and the count {words[Super.FREE_SLOTS]}"


def locks_in_use(name: str, words: memoryview, geometry: Geometry) -> Iterator[str]:
    """Yield a line for every lock with an owner, or with its last holder's mid-change mark, and for a lost unit."""
    for number in range(LOCK_COUNT):
        owner = words[geometry.lock(number) + Lock.OWNER]
        if owner:
            yield f"lock {number} is not free: its owner word is {owner}"
    semaphore = open_semaphore(names.PrivateNames.of(name, words).pool_semaphore())
    if semaphore.value != 1:
        yield f"the pool's semaphore is {semaphore.value}, not 1"
    semaphore.close()


def waiters(words: memoryview) -> Iterator[str]:
    waiting = words[Super.WAITER_TAIL] - words[Super.WAITER_HEAD]
    if waiting:
        yield f"{waiting} tickets wait for memory"


def _partitions(view: SlabView) -> Iterator[str]:
    table = _table(view, view.geometry.partition(0), view.words[Super.PARTITION_COUNT], Partition.length)
    for word in ("HEAD", "TAIL", "OPEN", "QUEUED", "MUTED", "IN_FLIGHT"):
        entries = np.flatnonzero(table[:, getattr(Partition, word)]).tolist()
        if entries:
            yield f"{word} of partition entries {entries} is not 0"


def _processes(view: SlabView) -> Iterator[str]:
    for process in view.processes():
        if not process.alive:
            yield f"dead process {process.pid} is still in the table"
    table = _table(view, view.geometry.process(0), view.geometry.max_processes, Process.length)
    if table[:, Process.FLUSHING].any():
        yield "a flush is still noted as in progress"


def _table(view: SlabView, start: int, rows: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """Return a copy of a table of words."""
    with view.words[start : start + rows * width] as words:
        return np.array(words, np.uint64).reshape(rows, width)


def sender_pid(name: str) -> int:
    """Return the pid of the slab's living sender as this process sees it, 0 if there is none."""
    try:
        with look(name) as view:
            sender, entry = view.sender(), view.words[Super.SENDER_ENTRY] - 1
            if not sender.alive or sender.pid is None or entry < 0:
                return 0
            return _pid_here(sender.pid, view.words[view.geometry.process(entry) + Process.PID_NAMESPACE])
    except SlabError:
        return 0


def _pid_here(pid: int, namespace: int) -> int:
    """Return the pid in this process's PID namespace of a process that has ``pid`` in another one, 0 if it is gone."""
    if namespace == pid_namespace():
        return pid
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            in_namespaces = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()
            if int(in_namespaces[-1]) == pid and (status.parent / "ns" / "pid").stat().st_ino == namespace:
                return int(status.parent.name)
        except (OSError, StopIteration):
            continue  # it has ended meanwhile
    return 0


def shared_files(name: str) -> list[Path]:
    return [Path(path) for path in names.leftovers(name) if os.path.exists(path)]
