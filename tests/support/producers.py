"""What the tests of whole producers share: small slabs that are gone soon, and a look at their senders."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import is_stopped
from processes import PATIENCE_S as PATIENCE_S
from processes import wait_until as wait_until
from senders import read_partition

from shmaccum import Producer
from shmaccum._core import Super
from shmaccum.sender.process import WATCH_S
from shmaccum.shm.names import leftovers

Settings = Callable[..., dict[str, object]]
"""The fixture ``settings``: settings of the test's slab, some of them changed; ``_`` stands for Kafka's ``.``."""


def settings_of(name: str, log_dir: Path | str, **settings: object) -> dict[str, object]:
    """Return settings of a small slab whose sender leaves soon; ``_`` stands for Kafka's ``.``."""
    defaults: dict[str, object] = {
        "shmaccum.name": name,
        "transport": "log",
        "log.dir": str(log_dir),
        "num.partitions": 3,
        "buffer.memory": 1 << 20,
        "sender.idle.ms": 100,
        "max.block.ms": 20_000,
        "shmaccum.max.processes": 16,
        "shmaccum.max.topics": 64,
        "shmaccum.max.partitions": 256,
    }
    return defaults | {key.replace("_", "."): value for key, value in settings.items()}


def kafka_settings(servers: str, name: str, **more: object) -> dict[str, object]:
    """Return settings of a small slab of brokers, whose sender leaves soon; ``_`` stands for Kafka's ``.``."""
    return {
        "bootstrap.servers": servers,
        "shmaccum.name": name,
        "buffer.memory": 1 << 20,
        "sender.idle.ms": 100,
        "max.block.ms": 20_000,
    } | {key.replace("_", "."): value for key, value in more.items()}


def wait_until_gone(name: str) -> None:
    """Wait until the last sender of a slab has left and taken the slab with it."""
    wait_until(lambda: not any(map(os.path.exists, leftovers(name))), f"slab {name} removed by its last user")


@contextmanager
def kept_slab(name: str, log_dir: Path, **settings: object) -> Iterator[Settings]:
    """Yield a function that gives settings of one slab, which stays until the end of the block, as does its sender.

    For tests that do no harm to each other: starting a sender takes longer than most of them. At the end, all that they
    have begun must be delivered, and all producers gone.
    """

    def make(**changes: object) -> dict[str, object]:
        return settings_of(name, log_dir, **{"sender_idle_ms": 600_000, **settings, **changes})

    yield make
    with Producer(make()) as producer:
        pool = producer._accumulator.state.pool
        wait_until(lambda: pool.available_memory() == pool.total_memory, "all memory is free")
        wait_until(lambda: producer._slab.users == 1, "all other producers have left")
        wait_until(lambda: sender_pid(producer), "there is a sender")
        pid = sender_pid(producer)
    os.kill(pid, signal.SIGTERM)
    wait_until_gone(name)


def wait_until_stored(log_dir: Path, count: int, topic: str = "t") -> None:
    """Wait until a sender has written ``count`` records into partition 0 of a topic."""
    wait_until(lambda: len(read_partition(log_dir, topic, while_written=True)) == count, f"{count} records are stored")


def sender_pid(producer: Producer) -> int:
    """Return the process id of the slab's sender, 0 while there is none."""
    slab = producer._slab
    entry = slab.words[Super.SENDER_ENTRY]
    return slab.processes.info(entry - 1).pid if entry and slab.has_sender() else 0


def sender_starts(producer: Producer) -> int:
    return int(producer._slab.words[Super.SENDER_STARTS])


@contextmanager
def in_the_way(directory: Path) -> Iterator[None]:
    """Have a file where a partition's directory is, of which nothing is written yet: so nothing can be."""
    directory.rmdir()
    directory.write_bytes(b"")
    yield
    directory.unlink()
    directory.mkdir(exist_ok=True)  # the sender, which looks for it now and then, may have been quicker


def stop_sender(producer: Producer, *, asleep: bool = False) -> None:
    """Stop the slab's sender, at a moment at which it has none of the slab's locks.

    ``asleep``: it sleeps then. When it goes on, it looks at the time before it sends anything.
    """
    pid, locks, words = sender_pid(producer), producer._slab.locks, producer._slab.words

    def is_stopped_without_a_lock() -> bool:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(pid), "the sender is stopped")
        if all(lock.owner() < 0 for lock in locks) and (words[Super.SENDER_ASLEEP] or not asleep):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_until(is_stopped_without_a_lock, "the sender has no lock")


@contextmanager
def stopped_sender(producer: Producer, *, asleep: bool = False) -> Iterator[None]:
    """Stop the slab's sender for the block, as `stop_sender` does."""
    pid = sender_pid(producer)
    stop_sender(producer, asleep=asleep)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def kill_sender(producer: Producer) -> None:
    """Kill the slab's sender, once there is one, and wait until it is dead, and who needs one looks for it again."""
    pid = 0

    def is_there() -> bool:
        nonlocal pid
        pid = sender_pid(producer)
        return pid != 0

    wait_until(is_there, "there is a sender")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not producer._slab.has_sender(), "the killed sender is gone")
    time.sleep(WATCH_S)  # no process looks for a sender more often


def wait_until_refused(producer: Producer, topic: str) -> None:
    """Ask for a topic that cannot be had, and wait until the sender has said why: it stays known."""
    entry = producer._accumulator.state.map.request(topic)
    wait_until(lambda: entry.error is not None, f"the sender says why there is no topic {topic}")
