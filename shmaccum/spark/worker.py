"""The producers of a Spark Python worker: one for each configuration, kept from task to task.

Spark runs many tasks in one worker process, one after the other, and kills it when it has been idle for a while.
A producer that dies with its worker leaves nothing undone: what it has sent is in the slab, and the sender, which is
a process of its own, delivers it.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack

from pyspark import TaskContext

from shmaccum.config import ProducerConfig
from shmaccum.producer.producer import Producer

_Key = frozenset[tuple[str, object]]

_producers: dict[_Key, _WorkerProducer] = {}
_lock = threading.Lock()
_is_set_aside = False


class _WorkerProducer(Producer):
    """A producer that is kept until it is closed."""

    def close(self, timeout: float | None = None) -> None:
        key = _key(self.config)
        with _lock:
            if _producers.get(key) is self:
                del _producers[key]
        super().close(timeout)


def producer(config: Mapping[str, object] | ProducerConfig) -> Producer:
    """Return this process's producer for a configuration: for ``foreachPartition``, ``mapInArrow`` and the like.

    It is made at the first call and kept for the tasks that follow, so a task leaves it open; it is closed at the
    process's exit. A task that must know that its records arrived waits for their futures, or flushes.

    A relative ``log.dir`` is taken from the worker's own directory, which is another one for every executor. A
    serializer or interceptor that is not given by its dotted name is another object in every task, and so makes
    another producer.

    Args:
        config: settings by Kafka's names, without Spark's prefix ``kafka.``, or a `ProducerConfig`.

    Raises:
        ShmaccumError: as `Producer`.
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
    """Keep the garbage collector from what a Spark worker has imported by now (`gc.freeze`).

    Spark has a worker collect all its garbage after every task, and that goes through all objects there are: tens of
    milliseconds for those of pyspark, pandas, pyarrow and numpy, which stay as long as the process does, and several
    times what else a short task takes. What a task makes is collected as before.

    Called when a producer is asked for again: the first task imports to its very end, where Spark makes its answer an
    Arrow array, and with its first one pyarrow imports pandas.
    """
    global _is_set_aside
    if not _is_set_aside and TaskContext.get() is not None:
        _is_set_aside = True
        gc.collect()
        gc.freeze()


def _key(config: ProducerConfig) -> _Key:
    return frozenset(config.as_dict().items())


def close_all() -> None:
    """Close all the producers of this process: what happens at its exit."""
    with ExitStack() as closing:
        for kept in list(_producers.values()):
            closing.callback(kept.close)


def _after_fork_in_child() -> None:
    # The producers stay: each goes on in the child as a process of its own. Only the lock may be the parent's.
    global _lock
    _lock = threading.Lock()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
