"""Operations of producers: append, flush, close."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from shmaccum.accumulator.state.lanes import LaneLease, LaneTable
from tools.step.operation import Operation, appended
from tools.step.operations.memory import give_back_once_wanted, take_everything
from tools.step.settings import HALF, LARGE, PARTITIONS, SLOT, TOPIC
from tools.step.survivor import PATIENCE_MS, Survivor
from tools.step.victim import Victim
from tools.support.accumulators import Accumulators

_GROWING: Final = {"batch.max.bytes": 4 * SLOT}


def _send(text: str, size: int = 0) -> Callable[[Victim], Callable[[], object]]:
    def begin(victim: Victim) -> Callable[[], object]:
        producer = victim.producer()
        producer.partitions_for(TOPIC)
        return lambda: victim.send(producer, 0, text, size)

    return begin


def _send_batch(rows: int, size: int) -> Callable[[Victim], Callable[[], object]]:
    def begin(victim: Victim) -> Callable[[], object]:
        producer = victim.producer()
        producer.partitions_for(TOPIC)
        return lambda: victim.send_batch(producer, 0, [f"row {number}" for number in range(rows)], size)

    return begin


def _flush(victim: Victim) -> Callable[[], object]:
    producer = victim.producer()
    victim.send(producer, 0, "to be flushed", HALF)
    victim.send(producer, 1, "to be flushed")
    return producer.flush


def _close(victim: Victim) -> Callable[[], object]:
    producer = victim.producer()
    victim.send(producer, 0, "before the end")
    return producer.close


def _poll(victim: Victim) -> Callable[[], object]:
    """A wait for the completion of its record."""
    producer = victim.producer()
    victim.send(producer, 0, "to be completed")
    return lambda: producer.poll(PATIENCE_MS / 1000)


def _leased(accumulator: Accumulators, victim: Victim) -> LaneLease:
    lease = LaneTable(accumulator.slab, accumulator.map).lease(victim.value("orders"))
    lease.open(8 + victim.is_second, 3, 2)
    return lease


def _append_in_lane(accumulator: Accumulators, lease: LaneLease, victim: Victim) -> None:
    """Append a record of a transaction: one that is never committed, so it may be in the log, or not."""
    value = victim.value("in a lane")
    victim.account.will_append([(0, value)])
    queue = lease.queue(accumulator.map.queues[PARTITIONS[0]])
    accumulator.append_to(queue, 0, accumulator.format.encode_body(None, value.encode(), ()), None, PATIENCE_MS)


def _lease(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    return lambda: _leased(accumulator, victim)


def _send_in_lane(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    lease = _leased(accumulator, victim)
    return lambda: _append_in_lane(accumulator, lease, victim)


def _end_transaction(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    lease = _leased(accumulator, victim)
    _append_in_lane(accumulator, lease, victim)

    def end() -> None:
        lease.end_transaction()
        lease.close()
        lease.release()

    return end


def _request_topic(victim: Victim) -> Callable[[], object]:
    return partial(victim.attach().map.request, "another")


_OPEN_BATCH: Final = appended((0, "open", 0))
_NEARLY_FULL_BATCH: Final = appended((0, "nearly full", HALF))
_TWO_BATCHES: Final = appended((0, "before it", HALF), (0, "nearly full", HALF))
"""Two batches in one partition; the open one has no room for another record of half a slot."""
_ROWS: Final = _send_batch(8, HALF // 2)


def _scattered(survivor: Survivor) -> None:
    """An open batch, and every other one of the remaining slots is free."""
    _OPEN_BATCH(survivor)
    survivor.scatter()


def _no_memory(survivor: Survivor) -> None:
    _TWO_BATCHES(survivor)
    take_everything(survivor)


OPERATIONS: Final = (
    Operation("append-open", _send("small"), _OPEN_BATCH, pairs=True),
    Operation("append-new", _send("small"), pairs=True),
    Operation("append-adjacent", _send("large", LARGE), _OPEN_BATCH),
    Operation("append-chain", _send("large", LARGE), _scattered),
    Operation("append-growing", _send("half", HALF), _TWO_BATCHES, settings=_GROWING, pairs=True),
    Operation("append-extending", _send("half", HALF), _no_memory, give_back_once_wanted, settings=_GROWING),
    Operation("seal", _send("half", HALF), _NEARLY_FULL_BATCH, pairs=True),
    Operation("append-columns", _ROWS, _OPEN_BATCH),
    Operation("append-columns-chain", _send_batch(1, LARGE), _scattered),
    Operation("append-columns-growing", _ROWS, _TWO_BATCHES, settings=_GROWING),
    Operation("flush", _flush, meanwhile=Survivor.run_once),
    Operation("close", _close, meanwhile=Survivor.run_once),
    Operation("poll", _poll, meanwhile=Survivor.run_once),
    Operation("request-topic", _request_topic, pairs=True),
    Operation("lease-lane", _lease, pairs=True),
    Operation("append-in-lane", _send_in_lane, pairs=True),
    Operation("end-transaction", _end_transaction, pairs=True),
)
