"""What bounds the throughput of a slab at a moment, and which setting helps.

Records that wait for others of their partition to be acknowledged are no fault: the producers are faster than what is
behind them. One report shows the cause: partitions with as much in flight as they can have, memory full of batches in
flight, or a sender that does not keep up. Batches that cannot be sent at all are a fault
(`shmaccum.observe.verdict`), and do not count here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shmaccum.observe.wording import count, in_bytes
from shmaccum.shm.broker_table import BrokerInfo
from shmaccum.shm.inspection import PartitionInfo
from shmaccum.shm.layout import BrokerState

_DEFAULT_IN_FLIGHT: Final = 5
"""Of a slab that does not say its settings."""


class Bound(StrEnum):
    """What bounds a slab."""

    IN_FLIGHT = "in flight"
    MEMORY = "memory"
    SENDER = "sender"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What bounds a slab at a moment.

    Attributes:
        bound: ``in_flight``, partitions have as much in flight as they can; ``memory``, it is full of what is in
            flight; ``sender``, it, its processor or the network does not keep up.
        text: how that shows, without its full stop.
        advice: which settings help.
    """

    bound: Bound
    text: str
    advice: str


def bottleneck(
    settings: Mapping[str, object],
    partitions: Sequence[PartitionInfo],
    brokers: Sequence[BrokerInfo],
    used: int,
    total: int,
    waiting_threads: int,
) -> Bottleneck | None:
    """Return the bottleneck of a slab with a running sender; None if nothing waits but for its turn.

    ``settings`` are those that all its users agree on; ``used`` and ``total`` bytes of its memory.
    """
    away = {each.node for each in brokers if each.state is not BrokerState.READY or (each.throttled_ms or 0) > 0}
    sendable = [each for each in partitions if each.queued_batches and not each.muted]
    sendable = [each for each in sendable if each.leader is not None and each.leader not in away]
    if not sendable or not (waiting_threads or any(each.queued_batches > 1 for each in sendable)):
        return None  # at most a batch that lingers
    most = settings.get("max.in.flight.requests.per.connection")
    limit = most if isinstance(most, int) else _DEFAULT_IN_FLIGHT
    is_idempotent = settings.get("enable.idempotence", True) is not False
    allowed = {each.node: limit * max(1, each.ready_connections) for each in brokers}
    busy = {each.node for each in brokers if not is_idempotent and each.in_flight >= allowed[each.node]}
    full = [each for each in sendable if each.in_flight_batches >= limit or each.leader in busy]
    if 2 * len(full) >= len(sendable):
        slowest = max((each.last_latency_us for each in brokers), default=0) / 1000
        text = f"{len(full):,} of {count(len(sendable), 'waiting partition')} with as much in flight as may be"
        text += f", and answers after {slowest:,.1f} ms" if slowest else ""
        other = "" if is_idempotent else "max.in.flight.requests.per.connection, "
        advice = f"raise {other}max.request.size and batch.max.bytes, or give the topics more partitions"
        return Bottleneck(Bound.IN_FLIGHT, text, advice)
    in_flight = max(0, used - sum(each.queued_bytes for each in partitions))
    if waiting_threads and 2 * in_flight >= used:
        text = f"{in_bytes(in_flight)} of {in_bytes(total)} in flight, and {count(waiting_threads, 'thread')} waiting"
        return Bottleneck(Bound.MEMORY, text, "raise buffer.memory, in a new slab")
    waiting = sum(each.queued_batches for each in sendable)
    text = f"{count(waiting, 'batch')} that could be sent, and {count(waiting_threads, 'thread')} waiting for memory"
    advice = (
        "its processor or the network is the limit: larger batches (batch.size, linger.ms) cost less of the first; "
        "each connection to a far broker carries little: more partitions and shmaccum.shards add some"
    )
    return Bottleneck(Bound.SENDER, text, advice)
