"""Operations of the sender, step by step of its loop, and of its successor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from shmaccum._core import ProduceResponse
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.sender.response_handler import ResponseHandler
from tools.step.operation import Operation, appended
from tools.step.sending import HandSender, later_ms
from tools.step.settings import HALF, INVALID, LARGE, PARTITIONS, SLOT, TOO_LARGE, TOPIC
from tools.step.survivor import Survivor
from tools.step.victim import Victim, die
from tools.support.accumulators import Accumulators

_LONG_AGO_MS: Final = 1_000_000
"""More than delivery.timeout.ms."""


_BATCHES: Final = appended((0, "a", HALF), (1, "b", 0), (0, "c", HALF), resigns=True)
"""Two batches in one partition, one in the other, and no sender."""
_OPEN_BATCH: Final = appended((0, "a", 0), resigns=True)
_SEVERAL_BATCHES: Final = appended(*((0, text, HALF) for text in ("a", "b", "c", "d")), resigns=True)
"""Three closed batches and an open one, in one partition."""
_BAD_RECORDS: Final = appended(
    *((0, text, size) for text, size in (("a", 80), ("b", 80), ("too large", TOO_LARGE), (INVALID.decode(), 0))),
    *((0, "c", HALF), (0, "d", 0)),
    resigns=True,
)
"""Two batches with invalid records among the others."""


def _chains(survivor: Survivor) -> None:
    """A large batch in slots that are not adjacent, and a small one after it."""
    survivor.scatter()
    survivor.append(0, "large", LARGE)
    survivor.append(0, "small")
    survivor.resign()


def _left_behind(survivor: Survivor) -> None:
    """Batches in flight, completing and queued, of a dead sender."""
    _BATCHES(survivor)
    survivor.append(1, "d", HALF)
    survivor.append(1, "e", HALF)
    survivor.have_died(lambda accumulator: _die_over_completing(accumulator, survivor))


def _die_over_completing(accumulator: Accumulators, survivor: Survivor) -> None:
    handle = ResponseHandler.handle

    def handle_one(handler: ResponseHandler, responses: list[ProduceResponse], now_ms: int) -> None:
        handle(handler, responses[:1], now_ms)

    ResponseHandler.handle = handle_one  # type: ignore[method-assign, assignment]
    BatchCompleter.deallocate = _die  # type: ignore[method-assign, assignment]
    sender = HandSender(accumulator, survivor.config, refusing=False)
    accumulator.sender.recover()
    sender.run_once()
    sender.run_once()


def _die(completer: BatchCompleter, batches: object) -> None:
    die()


def _drain(sender: HandSender) -> list[RecordBatch]:
    cluster = sender.transport.cluster()
    (node,) = cluster.nodes.values()
    return sender.accumulator.sender.drain(cluster, node, 1 << 20, later_ms())


def _serving(victim: Victim) -> HandSender:
    """Return a sender that knows its cluster and its producer id, and has sent nothing yet."""
    sender = victim.sender()
    sender.accumulator.sender.recover()
    sender.transport.request_update(sender.accumulator.map.topics)
    return sender


def _become(victim: Victim) -> Callable[[], object]:
    victim.attach()
    return lambda: victim.sender().resign()


def _recover(victim: Victim) -> Callable[[], object]:
    return victim.sender().accumulator.sender.recover


def _ready(victim: Victim) -> Callable[[], object]:
    sender = _serving(victim)
    return partial(sender.accumulator.sender.ready, sender.transport.cluster(), later_ms())


def _drain_all(victim: Victim) -> Callable[[], object]:
    return partial(_drain, _serving(victim))


def _close_ahead(victim: Victim) -> Callable[[], object]:
    """Close a first batch, for a thread to compress it."""
    sender = _serving(victim)
    look = sender.accumulator.producer.records.core.open_batch
    (slot,) = {seen[0].slot for queue in sender.accumulator.map.by_entry if (seen := look(queue.entry)) is not None}
    return lambda: sender.accumulator.sender.ahead.begin([slot])


def _reenqueue(victim: Victim) -> Callable[[], object]:
    """Put batches back: at the end, at the front, and in between."""
    sender = _serving(victim)
    first, second, third = (_drain(sender)[0] for _ in range(3))

    def put_back() -> None:
        for batch in (third, first, second):
            sender.accumulator.sender.reenqueue(batch, later_ms())

    return put_back


def _complete(victim: Victim) -> Callable[[], object]:
    """The pass that handles responses."""
    sender = _serving(victim)
    sender.transport.held = True
    sender.run_once()
    sender.transport.held = False
    return sender.run_once


def _expire(*, in_flight: bool) -> Callable[[Victim], Callable[[], object]]:
    def begin(victim: Victim) -> Callable[[], object]:
        sender = _serving(victim)
        if in_flight:
            _drain(sender)
        return lambda: sender.accumulator.sender.abort_expired_batches(later_ms() + _LONG_AGO_MS)

    return begin


def _deliver(victim: Victim) -> Callable[[], object]:
    return partial(_run, _serving(victim))


def _deliver_first(victim: Victim) -> Callable[[], object]:
    """The first passes of a slab: no producer id, and a partition's first batch is sent alone."""
    sender = victim.sender()
    sender.accumulator.map.request(TOPIC)
    sender.accumulator.map.update(TOPIC, len(PARTITIONS), None)
    for number in range(2):
        for partition in range(len(PARTITIONS)):
            victim.append(sender.accumulator, partition, f"{number}", HALF)
    return partial(_run, sender)


def _run(sender: HandSender) -> None:
    while sender.accumulator.slab.undelivered() != (0, 0):
        sender.run_once()


def _update_topic(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    accumulator.map.request("another")
    return lambda: accumulator.map.update("another", 3, None)


def _grow_topic(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    count = len(PARTITIONS) + 2
    for number in range(len(PARTITIONS), count):  # the next sender finds the same
        (Path(victim.config.log_dir) / f"{TOPIC}-{number}").mkdir(exist_ok=True)
    return lambda: accumulator.map.update(TOPIC, count, None)


def _shrink_topic(victim: Victim) -> Callable[[], object]:
    """The next sender finds all partitions again."""
    return partial(victim.attach().map.update, TOPIC, 1, None, topic_id=1)


OPERATIONS: Final = (
    Operation("sender-begin-end", _become, _BATCHES),
    Operation("sender-recover", _recover, _left_behind),
    Operation("ready", _ready, _BATCHES),
    Operation("drain", _drain_all, _BATCHES),
    Operation("close-ahead", _close_ahead, _OPEN_BATCH),
    Operation("reenqueue", _reenqueue, _SEVERAL_BATCHES),
    Operation("deliver", _deliver, _BATCHES),
    Operation("deliver-chain", _deliver, _chains),
    Operation("deliver-rolling", _deliver, _BATCHES, settings={"segment.bytes": SLOT}),
    Operation("deliver-first", _deliver_first, alone=True),
    Operation("deliver-compressing", _deliver, _BATCHES, settings={"compression.type": "gzip"}),
    Operation("deliver-parts", _deliver, _BAD_RECORDS, refusing=True),
    Operation("complete", _complete, _BATCHES),
    Operation("expire", _expire(in_flight=False), _BATCHES),
    Operation("expire-in-flight", _expire(in_flight=True), _BATCHES),
    Operation("update-topic", _update_topic, Survivor.resign),
    Operation("grow-topic", _grow_topic, Survivor.resign),
    Operation("shrink-topic", _shrink_topic, Survivor.resign),
)
