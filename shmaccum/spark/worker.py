"""The producers of a Spark Python worker: one for each configuration, kept between tasks.

Spark runs many tasks in one worker process, one after the other, and kills it when it has been idle for a while. The
death of a producer with its worker loses nothing: its accepted records are in the slab, and the sender, another
process, delivers them.

`acknowledge_at_once` disables delayed acknowledgement on a worker's connection to its JVM. By default Spark talks to
its workers by TCP, and writes the end of a task's rows as a small packet. Nagle's algorithm on the JVM's side holds
that packet until the data before it is acknowledged. From its second task on, the worker's side delays its
acknowledgement by up to 40 ms, to send it along with a response. But the worker only responds after the end of the
rows, so both sides wait. ``TCP_QUICKACK`` disables the delay until the worker writes the next time, so every task sets
it.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import stat
import threading
from collections.abc import Hashable, Mapping
from contextlib import ExitStack
from typing import Final

from pyspark import TaskContext

from shmaccum.config import ProducerConfig
from shmaccum.producer.producer import Producer

_Key = frozenset[tuple[str, object]]

_producers: dict[_Key, _WorkerProducer] = {}
_lock = threading.Lock()
_is_set_aside = False


class _WorkerProducer(Producer):
    """A producer kept until it is closed."""

    def close(self, timeout: float | None = None) -> None:
        key = _key(self.config)
        with _lock:
            if _producers.get(key) is self:
                del _producers[key]
        super().close(timeout)


def producer(config: Mapping[str, object] | ProducerConfig) -> Producer:
    """Return this process's producer for a configuration: for ``foreachPartition``, ``mapInArrow`` and the like.

    The first call creates it, and later tasks reuse it, so a task does not close it; the process's exit does. A task
    that must know that its records arrived waits for their futures, or flushes.

    A relative ``log.dir`` starts at the worker's own directory, which differs between executors. A serializer or
    interceptor that is not given by its dotted name is a new object in every task, and so creates a new producer.

    ``config``: settings by Kafka's names, without Spark's prefix ``kafka.``, or a `ProducerConfig`.

    Raises ShmaccumError: as `Producer`.
    """
    if not isinstance(config, ProducerConfig):
        config = ProducerConfig.parse(config)
    key = _key(config)
    with _lock:
        found = _producers.get(key)
        if found is None:
            found = _producers[key] = _WorkerProducer(config)
        else:
            _set_aside_what_stays()
        return found


def _set_aside_what_stays() -> None:
    """Exclude everything a Spark worker has imported so far from garbage collection (`gc.freeze`).

    Spark makes a worker collect all its garbage after every task, which visits all objects. For the objects of pyspark,
    pandas, pyarrow and numpy, which live as long as the process, that takes tens of milliseconds: several times the
    rest of a short task. Objects that a task creates are collected as before.

    Called when a producer is requested again, because the first task imports until its end. There Spark makes its
    result an Arrow array, and pyarrow imports pandas for its first one.
    """
    global _is_set_aside
    if not _is_set_aside and TaskContext.get() is not None:
        _is_set_aside = True
        gc.collect()
        gc.freeze()


def _key(config: ProducerConfig) -> _Key:
    # A dataclass as a serializer is unhashable, for example. No other object gets its id while its producer is kept.
    values = config.as_dict().items()
    return frozenset((name, value if isinstance(value, Hashable) else id(value)) for name, value in values)


def close_all() -> None:
    """Close all producers of this process; runs at its exit."""
    with ExitStack() as closing:
        for kept in list(_producers.values()):
            closing.callback(kept.close)


def _after_fork_in_child() -> None:
    # The producers stay: each continues in the child as another process. A thread of the parent can hold the lock.
    global _lock
    _lock = threading.Lock()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)


# --- the connection to the JVM ----------------------------------------------------------------------

_LOOPBACK: Final = ("127.0.0.1", "::1")
"""Addresses at which Spark's workers listen."""


def acknowledge_at_once() -> None:
    """Set TCP_QUICKACK on this process's TCP connections within the host; it lasts until the process writes again.

    Spark does not tell which connection is its own. A worker rarely has another one, and quick acknowledgement does
    not harm that.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if _is_within_this_host(connection):
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        except OSError:
            continue  # closed in the meantime, or not connected


def _is_within_this_host(connection: socket.socket) -> bool:
    return (
        connection.family in (socket.AF_INET, socket.AF_INET6)
        and connection.type == socket.SOCK_STREAM
        and connection.getpeername()[0] in _LOOPBACK
    )
