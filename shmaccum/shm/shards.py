"""Which of several slabs with equal settings a process joins, and which of them need a sender.

Producers with equal settings share one slab, or divide themselves among as many as ``shmaccum.shards`` says. A shard is
a slab like any other, ``NAME@0`` and so on. It has memory, locks, a process table and a sender, and no word
of it knows of the others. So nothing here writes to a slab.

A shard whose users have all been killed keeps its records. Later processes can join other shards, so every process
looks after all of them (`tend`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from shmaccum.errors import SlabError
from shmaccum.shm import names
from shmaccum.shm.lifecycle import attached_slabs, look
from shmaccum.shm.lockfile import PROCESS, LockFile


@contextlib.contextmanager
def choose_shard(shards: Sequence[str]) -> Iterator[str]:
    """Yield the shard for this process: the one that it is in, or else the one with the fewest producers.

    Meanwhile no other thread of this process attaches or detaches: a process stays in one shard.
    """
    if len(shards) == 1:
        yield shards[0]
        return
    with attached_slabs() as attached:
        mine = [name for name in shards if name in attached]
        if not mine:
            # Processes that start together count the same producers: each begins with another shard.
            first = os.getpid() % len(shards)
            mine = [min((*shards[first:], *shards[:first]), key=_producers)]
        yield mine[0]


def _producers(name: str) -> int:
    """Return how many living processes produce into a slab; 0 if it does not exist, or cannot be read."""
    try:
        with look(name) as view:
            return view.producers()
    except SlabError:
        return 0  # if it cannot be used either, the attach says why


def tend(name: str, start: Callable[[], None]) -> None:
    """Start a sender for a shard that holds records and that no process uses; only one process of the host does.

    The shard is another than this process's.
    """
    if not os.path.exists(names.segment_path(name)):
        return
    with attached_slabs() as attached:
        if name in attached:
            return  # closing its lock file would drop the locks that this process has in it
        with contextlib.suppress(SlabError):  # not one of these settings, or being created or removed
            with _open(name) as lock_file:
                if lock_file.holder(PROCESS, length=0):
                    return  # the usual case
            with look(name) as view:
                if view.undelivered() == (0, 0):
                    return
            with _open(name) as lock_file, lock_file.try_start() as mine:
                if mine and not lock_file.holder(PROCESS, length=0):
                    start()


def _open(name: str) -> contextlib.closing[LockFile]:
    return contextlib.closing(LockFile.open(name, create=False))
