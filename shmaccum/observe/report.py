"""A report of a slab as data: all that commands, exporters and programs show of it is made of this one.

Later versions can add fields; no field changes its name or meaning. Times are milliseconds since the epoch, sizes are
bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final

from shmaccum._core import Geometry, Super
from shmaccum.abi import VERSION
from shmaccum.errors import SlabError, SlabNotFoundError
from shmaccum.observe.bottleneck import Bottleneck, bottleneck
from shmaccum.observe.kafka_metrics import slab_metrics
from shmaccum.observe.wording import role_names, user_name
from shmaccum.shm import names, shared_settings
from shmaccum.shm.broker_table import BrokerInfo, brokers
from shmaccum.shm.distribution import Distribution, read, read_all
from shmaccum.shm.incidents import IncidentInfo, incidents, sender_log
from shmaccum.shm.inspection import LaneInfo, PartitionInfo, SenderInfo, TopicInfo
from shmaccum.shm.layout import OfProcess, OfSender, Role
from shmaccum.shm.lifecycle import look
from shmaccum.shm.processes import ProcessInfo
from shmaccum.shm.validation import check, reporting_damage


@dataclass(frozen=True, slots=True)
class Memory:
    """A slab's memory.

    Attributes:
        total, available, used, peak: bytes of slots: in all, free, used, and the most ever used at once.
        slot_size, slot_count: of the slots.
        segment_size: bytes of shared memory, with the tables.
        waiting_threads: threads of all processes that wait for memory.
        waiting_ms: for how long there has been at least one of them; 0 if there is none.
    """

    total: int
    available: int
    used: int
    peak: int
    slot_size: int
    slot_count: int
    segment_size: int
    waiting_threads: int
    waiting_ms: int


@dataclass(frozen=True, slots=True)
class Tables:
    """A slab's tables.

    Attributes:
        topic_entries, max_topics: entries in use, and in all.
        partition_entries, max_partitions: the same for partitions; each lane has its own entries.
        lane_entries, max_lanes: the same for lanes, which stay in use: one that no process holds is used again.
        max_processes: entries for processes.
    """

    topic_entries: int
    max_topics: int
    partition_entries: int
    max_partitions: int
    lane_entries: int
    max_lanes: int
    max_processes: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """Counts of repairs after processes died.

    Attributes:
        lock_takeovers: locks taken over from dead holders.
        rebuilds: times that indexes were rebuilt from the slot headers.
        reclaimed_slots: slots reclaimed from processes that died before they used them.
    """

    lock_takeovers: int
    rebuilds: int
    reclaimed_slots: int


@dataclass(frozen=True, slots=True)
class SlabReport:
    """The readable state of a slab.

    Attributes:
        name: the slab's.
        owner: the owner's user name; None if this host has none for the user id.
        owner_uid: the owner's user id.
        created_ms: when it was created.
        memory: its memory for batches.
        tables: entries in use, and their limits.
        sender: the sender's role.
        log: path of the sender's log, or why there is none; empty while that is unknown.
        incidents: errors between the sender and the brokers, the latest first; 32 at most.
        processes: producers and senders, alive, or dead and not yet cleaned up.
        topics: those with metadata, or whose metadata a producer waits for.
        partitions: those with metadata, and the entries of lanes that a process holds or that have a batch.
        idle_partitions: entries of lanes that no process holds, without a batch; what they have counted stays.
        refused_without_topic: calls of `send` and `send_batch` that failed for a topic without an entry.
        lanes: those that a process holds.
        brokers: those that a sender of this slab has connected to, or tried to.
        distributions: ``queue_time_us``, from a batch's first record to its drain; ``delivery_time_us``, to its
            acknowledgement; ``memory_wait_us``, waits for memory; ``batch_records``; ``batch_fill_permille``, the part
            of its slots that a batch fills; ``compression_permille``, the part of its size that is left;
            ``record_size_bytes``.
        recovery: repairs after processes died.
        metrics: of the slab, by Kafka's names: see docs/monitoring/kafka-metrics.md.
        bottleneck: what bounds its throughput at this moment; None if nothing does, or nothing can be sent at all.
    """

    name: str
    owner: str | None
    owner_uid: int
    created_ms: int
    memory: Memory
    tables: Tables
    sender: SenderInfo
    log: str
    incidents: list[IncidentInfo]
    processes: list[ProcessInfo]
    topics: list[TopicInfo]
    partitions: list[PartitionInfo]
    idle_partitions: list[PartitionInfo]
    refused_without_topic: int
    lanes: list[LaneInfo]
    brokers: list[BrokerInfo]
    distributions: dict[str, Distribution]
    recovery: Recovery
    metrics: dict[str, float]
    bottleneck: Bottleneck | None

    def shown_partitions(self) -> list[PartitionInfo]:
        """Return `partitions` for people: what was sent in lanes that no process holds belongs to the partition."""
        shown = {each.entry: each for each in self.partitions}
        own = {(each.topic, each.partition): each.entry for each in self.partitions if each.transactional_id is None}
        for left in self.idle_partitions:
            entry = own.get((left.topic, left.partition))
            if entry is not None:
                each = shown[entry]
                offsets = [offset for offset in (each.last_offset, left.last_offset) if offset is not None]
                shown[entry] = each._replace(
                    records_sent=each.records_sent + left.records_sent,
                    bytes_sent=each.bytes_sent + left.bytes_sent,
                    batches_retried=each.batches_retried + left.batches_retried,
                    records_failed=each.records_failed + left.records_failed,
                    last_offset=max(offsets, default=None),
                )
        return list(shown.values())


@dataclass(frozen=True, slots=True)
class UnreadableSlab:
    """A slab of another user or version, or an incomplete one.

    Attributes:
        name: the slab's.
        error: why it cannot be read, and what to do.
    """

    name: str
    error: str


def report(name: str) -> SlabReport:
    """Read a slab without a lock.

    Raises:
        SlabNotFoundError: no slab has that name.
        SlabError: it cannot be read.
    """
    with look(name) as view, reporting_damage(name, view.words, view.geometry):
        words, geometry = view.words, view.geometry
        check(name, words, geometry)
        available = words[Super.FREE_SLOTS] * geometry.slot_size
        total = geometry.slot_count * geometry.slot_size
        settings = shared_settings.read(words, words.cast("B"), geometry).fixed
        sender, found_brokers = view.sender(), brokers(words, geometry)
        if not sender.alive:
            found_brokers = [each.left() for each in found_brokers]
        partitions, idle_partitions = view.all_partitions()
        waiting_threads = view.memory_waiters()
        return SlabReport(
            name=name,
            owner=user_name(words[Super.OWNER_UID]),
            owner_uid=words[Super.OWNER_UID],
            created_ms=words[Super.CREATED_MS],
            memory=Memory(
                total=total,
                available=available,
                used=total - available,
                peak=words[Super.PEAK_SLOTS] * geometry.slot_size,
                slot_size=geometry.slot_size,
                slot_count=geometry.slot_count,
                segment_size=geometry.total_size,
                waiting_threads=waiting_threads,
                waiting_ms=_waiting_ms(words),
            ),
            tables=Tables(
                topic_entries=words[Super.TOPIC_COUNT],
                max_topics=geometry.max_topics,
                partition_entries=words[Super.PARTITION_COUNT],
                max_partitions=geometry.max_partitions,
                lane_entries=words[Super.LANE_COUNT],
                max_lanes=geometry.max_lanes,
                max_processes=geometry.max_processes,
            ),
            sender=sender,
            log=sender_log(words, geometry),
            incidents=incidents(words, geometry),
            processes=view.processes(),
            topics=view.topics(),
            partitions=partitions,
            idle_partitions=idle_partitions,
            refused_without_topic=words[Super.REFUSALS],
            lanes=view.lanes(),
            brokers=found_brokers,
            distributions={name: _distribution(words, geometry, each) for name, each in _DISTRIBUTIONS.items()},
            recovery=Recovery(
                lock_takeovers=view.lock_takeovers(),
                rebuilds=words[Super.REBUILDS],
                reclaimed_slots=words[Super.RECLAIMED_SLOTS],
            ),
            metrics=slab_metrics(words, geometry),
            bottleneck=bottleneck(settings, partitions, found_brokers, total - available, total, waiting_threads)
            if sender.alive and not sender.stopped
            else None,
        )


def _waiting_ms(words: memoryview) -> int:
    if words[Super.WAITER_HEAD] == words[Super.WAITER_TAIL]:
        return 0
    return max(0, time.monotonic_ns() // 1_000_000 - words[Super.WAITING_SINCE_MS])


_DISTRIBUTIONS: Final[dict[str, OfSender | OfProcess]] = {
    "queue_time_us": OfSender.QUEUE_TIME,
    "delivery_time_us": OfSender.DELIVERY_TIME,
    "memory_wait_us": OfProcess.MEMORY_WAIT,
    "batch_records": OfSender.BATCH_RECORDS,
    "batch_fill_permille": OfSender.BATCH_FILL,
    "compression_permille": OfSender.COMPRESSION,
    "record_size_bytes": OfProcess.RECORD_SIZE,
}


def _distribution(words: memoryview, geometry: Geometry, which: OfSender | OfProcess) -> Distribution:
    """Return a histogram of the sender, or the sum over all processes there ever were."""
    if isinstance(which, OfSender):
        return read(words, geometry.sender_histogram(which))
    return read_all(words, (geometry.process_histogram(each, which) for each in range(geometry.max_processes)))


def all_reports(name: str | None = None) -> Iterator[SlabReport | UnreadableSlab]:
    """Yield all slabs of the host, if any, in order of names, or those of a name; or why one cannot be read."""
    for each in names.slab_names() if name is None else names.slabs_of(name) or [name]:
        try:
            yield report(each)
        except SlabNotFoundError:
            continue  # removed since the names were listed
        except SlabError as error:
            yield UnreadableSlab(each, str(error))


def reports_of(name: str) -> list[SlabReport]:
    """Read a slab, or the shards that a name stands for.

    Raises:
        SlabNotFoundError: there is none; the text lists those that exist.
        SlabError: one cannot be read.
    """
    try:
        return [report(each) for each in names.slabs_of(name) or [name]]
    except SlabNotFoundError:
        raise no_such_slab(name) from None


def no_such_slab(name: str) -> SlabNotFoundError:
    """Return the error for a slab that does not exist; its text lists the slabs that do."""
    there = ", ".join(names.slab_names())
    return SlabNotFoundError(f"there is no slab {name!r}; {f'there are: {there}' if there else 'there are no slabs'}")


def as_json(slabs: Sequence[SlabReport | UnreadableSlab]) -> dict[str, Any]:
    """Return reports as JSON can hold them, states by their names in lower case; the version is this command's."""
    return {"version": VERSION, "slabs": [_plain(slab) for slab in slabs]}


def _plain(value: Any) -> Any:
    if isinstance(value, Distribution):
        return {
            "count": value.count,
            "mean": value.mean,
            **{f"p{percent:g}".replace(".", ""): value.percentile(percent) for percent in (50, 90, 99, 99.9)},
            "max": value.largest,
        }
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Role):
        return role_names(value)
    if isinstance(value, type):
        return value.__name__
    return value.name.lower() if isinstance(value, Enum) else value
