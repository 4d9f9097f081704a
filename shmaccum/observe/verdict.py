"""What is wrong with a slab, in words: the first line of ``shmaccum top``.

Each rule looks at one report and no other state, so that a single look tells. A fault counts from a second on, and
until `_RECENT_MS` after it was last seen. The rules are in the order of how much they explain: a broker that cannot be
reached explains full memory, not the other way round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from shmaccum._core import LOCK_POOL, LOCK_STRIPES, LOCK_TABLES, STRIPES
from shmaccum.errors import (
    AuthenticationError,
    AuthorizationError,
    BufferExhaustedError,
    InvalidMetadataError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from shmaccum.observe.report import SlabReport
from shmaccum.observe.wording import ago_ms, count, partition_name, said, since, span
from shmaccum.shm.inspection import PartitionInfo, TopicInfo
from shmaccum.shm.layout import NEARLY_FULL, BrokerState, Role, TopicState

_RECENT_MS: Final = 3000
"""What was last seen longer ago is over."""
_NOTED_MS: Final = 1000
"""What takes no longer than this is normal: a batch that lingers, a connection that opens."""
_SLOW_MS: Final = 500
"""A broker that takes longer to answer is slow."""
_OLD_MS: Final = 15_000
"""A record that waits longer without any known reason is one itself."""
_REFUSED_MS: Final = 60_000
"""How long a refused `send` counts: with the default of ``max.block.ms``, each takes that long to fail."""
_NAMED: Final = 3
"""Most partitions that a sentence names."""


class Level(IntEnum):
    """How bad it is."""

    HEALTHY = 0
    WARNING = 1
    """Records arrive, but not as they should."""
    FAULT = 2
    """Records wait, or fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        level: ``warning`` if records arrive, but not as they should; ``fault`` if records wait or fail.
        text: a sentence without its full stop: what it is, since when, and what waits for it.
    """

    level: Level
    text: str


def findings(slab: SlabReport) -> list[Finding]:
    """Return a slab's faults and warnings, the worst first; none if it is healthy."""
    found = [
        *sender_findings(slab),
        *stopped_holders(slab),
        *_refused(slab),
        *_unreachable(slab),
        *_throttled(slab),
        *_slow(slab),
        *_failing(slab),
        *_without_leader(slab),
        *_topics(slab),
    ]
    # A refused send explains no full memory: with BufferExhaustedError, the memory explains the send.
    found = [*_memory(slab, found), *found, *_refusing(slab)]
    if not found:
        found += _waiting_long(slab)
    found += (Finding(Level.WARNING, f"{text}: {advice}") for text, advice in tables_in_use(slab) if advice)
    return sorted(found, key=lambda finding: -finding.level)


def stopped_holders(slab: SlabReport) -> Iterator[Finding]:
    """Yield the processes that are stopped while they hold a lock that others need."""
    for process in slab.processes:
        if process.stopped and process.locks and process.pid != slab.sender.pid:
            held = " and ".join(sorted({_lock(number, slab.partitions) for number in process.locks}))
            role = "producer" if Role.PRODUCER in process.roles else "sender"
            name = f" ({process.name})" if process.name else ""
            yield Finding(Level.FAULT, f"{role} {process.pid}{name} is stopped, and holds {held}")


def verdict(slab: SlabReport) -> str:
    """Return the worst finding, or that there is none."""
    found = findings(slab)
    return found[0].text if found else "healthy"


def sender_findings(slab: SlabReport) -> Iterator[Finding]:
    """Yield the findings that a restart of the sender can cure."""
    sender = slab.sender
    old = [each for each in slab.partitions if each.oldest_ms > _NOTED_MS]
    waiting = sum(each.queued_records + each.in_flight_records for each in old)
    waits = f": {count(waiting, 'record')} waiting" if waiting else ""
    if sender.stopped:
        yield Finding(Level.FAULT, f"the sender, {sender.halt()}{waits}")
    elif not sender.alive and waiting:
        died = "" if sender.pid is None else f": process {sender.pid} has died"
        yield Finding(Level.FAULT, f"no sender{died}{waits}")
    elif sender.alive and sender.starts > 1:
        newest = next((each for each in slab.processes if each.pid == sender.pid), None)
        if newest is not None and _is_within(newest.attached_ms, _RECENT_MS):
            ago = since(newest.attached_ms)
            yield Finding(Level.WARNING, f"the sender was replaced {ago} ago, by process {sender.pid}")


def _refused(slab: SlabReport) -> Iterator[Finding]:
    """Refused logins and authorizations."""
    refused = [
        each
        for each in slab.incidents
        if issubclass(each.error, AuthenticationError) and (each.lasts or _is_within(each.last_ms, _RECENT_MS))
    ]
    if refused:
        since_ms = min(each.first_ms for each in refused)  # of all brokers: each has its own incident
        yield Finding(Level.FAULT, f"login refused for {since(since_ms)}: {said(refused[0])}")


def _unreachable(slab: SlabReport) -> Iterator[Finding]:
    """Brokers that cannot be reached, or whose connections do not open: it is they, or what the login waits for."""
    is_any_ready = any(each.state is BrokerState.READY for each in slab.brokers)
    for broker in slab.brokers:
        if broker.node < 0 and is_any_ready:
            continue  # another address of bootstrap.servers, or a broker itself, can be reached
        incident = next((each for each in slab.incidents if each.lasts and each.node == broker.node), None)
        if incident is not None:
            if issubclass(incident.error, AuthenticationError):
                continue
            text = f"{broker} unreachable for {since(incident.first_ms)}"
        elif slab.sender.stopped or not slab.sender.alive:
            continue  # its connections ended with it
        elif broker.login_ms() >= _NOTED_MS:
            text = f"the login at {broker} has been waiting for a token or ticket for {span(broker.login_ms())}"
        elif broker.state is BrokerState.CONNECTING and ago_ms(broker.since_ms) >= _NOTED_MS:
            text = f"{broker} has not answered our first request for {since(broker.since_ms)}"
        else:
            continue
        waiting = [each for each in slab.partitions if each.leader == broker.node and each.queued_batches]
        level = Level.FAULT if waiting or broker.node < 0 else Level.WARNING
        yield Finding(level, f"{text}: {count(len(waiting), 'partition')} waiting" if waiting else text)


def _throttled(slab: SlabReport) -> Iterator[Finding]:
    for broker in slab.brokers:
        if broker.throttled_ms is not None and broker.throttled_ms > -_RECENT_MS:
            left = f", for {span(broker.throttled_ms)} more" if broker.throttled_ms > 0 else ""
            yield Finding(Level.WARNING, f"{broker} throttles us by a quota{left}")


def _slow(slab: SlabReport) -> Iterator[Finding]:
    if slab.sender.stopped or not slab.sender.alive:
        return  # no sender waits for the answer
    for broker in slab.brokers:
        if broker.state is not BrokerState.READY:
            continue
        is_recent = broker.answered_ms is not None and broker.answered_ms < _RECENT_MS
        if broker.waiting_ms > _SLOW_MS:
            yield Finding(Level.WARNING, f"{broker} has not answered for {span(broker.waiting_ms)}")
        elif is_recent and broker.last_latency_us > _SLOW_MS * 1000:
            yield Finding(Level.WARNING, f"{broker} answers in {span(broker.last_latency_us / 1000)}")


def _failing(slab: SlabReport) -> Iterator[Finding]:
    """Errors of batches that have just failed, or are tried again."""
    for incident in slab.incidents:
        if incident.partition is None or not _is_within(incident.last_ms, _RECENT_MS):
            continue
        where = next((each for each in slab.partitions if each.entry == incident.partition), None)
        failed = sum(each.records_failed for each in slab.partitions if each.entry == incident.partition)
        is_refused = not incident.error.retriable or issubclass(incident.error, AuthorizationError)
        is_waiting = where is not None and where.oldest_ms > _NOTED_MS
        what = "refuses records" if is_refused and failed else "does not take records"
        name = partition_name(where) if where is not None else "a partition"
        yield Finding(Level.FAULT if is_refused or is_waiting else Level.WARNING, f"{name} {what}: {said(incident)}")
        return


def _without_leader(slab: SlabReport) -> Iterator[Finding]:
    explained = {each.name for each in slab.topics if _lacks_metadata(each)}
    without = [each for each in slab.partitions if each.leader is None and each.oldest_ms > _NOTED_MS]
    without = [each for each in without if each.topic not in explained]
    if without and not slab.sender.stopped and slab.sender.alive:
        oldest_ms = max(each.oldest_ms for each in without)
        yield Finding(Level.FAULT, f"{_names(without)} without a leader: records wait for {span(oldest_ms)}")


def _topics(slab: SlabReport) -> Iterator[Finding]:
    for topic in slab.topics:
        if topic.error is None or not _lacks_metadata(topic):
            continue
        is_unknown = topic.error is UnknownTopicOrPartitionError and not topic.partitions
        none = f"no metadata of topic {topic.name}: {topic.error.__name__}"
        text = f"there is no topic {topic.name}" if is_unknown else none
        calls = _calls(topic)
        oldest_ms = max((each.oldest_ms for each in slab.partitions if each.topic == topic.name), default=0)
        waits = f": records wait for {span(oldest_ms)}" if oldest_ms > _NOTED_MS else ""
        yield Finding(Level.FAULT if calls or waits else Level.WARNING, f"{text}{calls or waits}")


def _lacks_metadata(topic: TopicInfo) -> bool:
    """Return whether the last answer had no metadata of a topic."""
    # Without partitions, not by its state: that is REQUESTED again while a producer waits for the topic.
    return topic.error is not None and (not topic.partitions or topic.state is TopicState.FAILED)


def _refusing(slab: SlabReport) -> Iterator[Finding]:
    """Topics whose last `send` failed before acceptance."""
    for topic in slab.topics:
        error = topic.refused_error
        if error is None or topic.error is not None or not _is_refused(topic):
            continue
        is_full = slab.memory.waiting_threads or not slab.memory.available
        if issubclass(error, BufferExhaustedError) and not is_full and not _is_within(topic.refused_ms, _RECENT_MS):
            continue  # there is memory again
        is_fault = issubclass(error, KafkaTimeoutError | InvalidMetadataError | AuthorizationError)
        level = Level.FAULT if is_fault else Level.WARNING
        yield Finding(level, f"send to topic {topic.name} fails: {error.__name__}{_calls(topic)}")


def _is_refused(topic: TopicInfo) -> bool:
    """Return whether calls of `send` to a topic failed of late."""
    error = topic.refused_error
    # With partitions, what such an error complains of is over.
    is_over = topic.partitions and error is not None and issubclass(error, InvalidMetadataError | AuthorizationError)
    return _is_within(topic.refused_ms, _RECENT_MS if is_over else _REFUSED_MS)


def _calls(topic: TopicInfo) -> str:
    if not _is_refused(topic):
        return ""
    calls = count(sum(topic.refused.values()), "call")
    return f": {calls} of send failed, the last {since(topic.refused_ms)} ago"


def _memory(slab: SlabReport, causes: Sequence[Finding]) -> Iterator[Finding]:
    memory = slab.memory
    if memory.waiting_threads and memory.waiting_ms > _NOTED_MS:
        cause = causes[0].text if causes else f"{count(memory.waiting_threads, 'thread')} waiting"
        if not causes and slab.brokers:
            slowest = max(slab.brokers, key=lambda each: each.last_latency_us)
            cause += f", and {slowest} answers in {span(slowest.last_latency_us / 1000)}"
        yield Finding(Level.FAULT, f"memory full for {span(memory.waiting_ms)}: {cause}")


def _waiting_long(slab: SlabReport) -> Iterator[Finding]:
    old = [each for each in slab.partitions if each.oldest_ms > _OLD_MS]
    if old:
        oldest_ms = max(each.oldest_ms for each in old)
        yield Finding(Level.WARNING, f"records of {_names(old)} wait for {span(oldest_ms)}")


def tables_in_use(slab: SlabReport) -> Iterator[tuple[str, str]]:
    """Yield how much of each table is in use, and what to do if that is nearly all."""
    tables = slab.tables
    for used, most, what in (
        (tables.topic_entries, tables.max_topics, "topic"),
        (tables.partition_entries, tables.max_partitions, "partition"),
        *(((len(slab.lanes), tables.max_lanes, "transaction"),) if slab.lanes else ()),
    ):
        yield f"{used:,} of {count(most, what)}", f"set shmaccum.max.{what}s higher" * (used >= NEARLY_FULL * most)


# --- words ------------------------------------------------------------------------------------------------


def _lock(number: int, partitions: Sequence[PartitionInfo]) -> str:
    if number == LOCK_POOL:
        return "the memory's lock"
    if number == LOCK_TABLES:
        return "the lock of the topics"
    behind = [each for each in partitions if each.entry % STRIPES == number - LOCK_STRIPES]
    waiting = [each for each in behind if each.queued_batches] or behind
    return f"partition {_names(waiting)}" if len(waiting) == 1 else f"partitions {_names(waiting)}"


def _names(partitions: Sequence[PartitionInfo]) -> str:
    named = ", ".join(map(partition_name, partitions[:_NAMED]))
    more = len(partitions) - _NAMED
    return f"{named} and {more:,} more" if more > 0 else named


def _is_within(wall_ms: int, most_ms: int) -> bool:
    """Return whether a time is that close to now; one far ahead is of a clock that was set back since."""
    return abs(time.time() * 1000 - wall_ms) < most_ms
