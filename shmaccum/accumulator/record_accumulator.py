"""The RecordAccumulator of Kafka's producer, over all the processes of a host.

One deque of batches per partition, in shared memory. Producers append to the last batch of a deque, the one
sender takes batches from the front; what each side does is in a module of its own, and this class is the whole,
with Kafka's names.

No process holds two locks at once: memory is taken from the pool before the partition's lock, and given back after.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from shmaccum import __version__
from shmaccum.accumulator.acknowledgements import Acknowledgements
from shmaccum.accumulator.backoff import RetryBackoff
from shmaccum.accumulator.batch_appender import BatchAppender
from shmaccum.accumulator.batch_compressor import BatchCompressor, levels_of
from shmaccum.accumulator.batch_drainer import BatchDrainer
from shmaccum.accumulator.completer import BatchCompleter, BatchOutcome
from shmaccum.accumulator.delivery_limits import DeliveryLimits
from shmaccum.accumulator.expirer import BatchExpirer
from shmaccum.accumulator.futures import DeliveryCallback, FutureColumnsMetadata, sizes_word
from shmaccum.accumulator.growing_batches import GrowingBatches
from shmaccum.accumulator.partition_map import PartitionMap
from shmaccum.accumulator.partition_queue import rebuild_stripe
from shmaccum.accumulator.patience import BatchReturns, Patience
from shmaccum.accumulator.ready_check import ReadyCheck, ReadyCheckResult
from shmaccum.accumulator.record_appender import RecordAppendResult, check_timestamp
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.accumulator.sequences import Sequences
from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from shmaccum.pool.buffer_pool import BufferPool, slot_size_for
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import message_format_magic, record_format
from shmaccum.shm.layout import LOCK_STRIPES, STRIPES, Geometry
from shmaccum.shm.room import attach_making_room
from shmaccum.shm.settings import UserSettings
from shmaccum.shm.slab import Slab
from shmaccum.shm.sweep import sweep
from shmaccum.shm.turn import is_reentrant

if TYPE_CHECKING:  # pyarrow is an extra
    from shmaccum.accumulator.column_appender import ColumnAppender
    from shmaccum.record.column_bodies import ColumnBodies


_REDO_SHARE: Final = 8
"""Redo areas take no more than this part of ``buffer.memory`` in a slab whose maker does not compress."""


class RecordAccumulator:
    """The batches of a slab, as one process sees them. Threads may append; only the sender drains.

    Args:
        slab: attached; the caller detaches it after `close`.
        config: the settings that all users of the slab share.

    Attributes:
        slab: where it all is.
        pool: the slab's BufferPool.
        map: the partitions.
        format: of the records.
        acks: what this process waits to hear of; all accumulators of a process share them.
        appender: for those who have the deque and the encoded body at hand.
        limits: how long and how often batches are tried.
        sequences: the sender's: the producer id, and what brokers say of sequence numbers.
        patience: the sender's, with those who hold a lock.
    """

    def __init__(self, slab: Slab, config: ProducerConfig) -> None:
        self.slab: Final = slab
        self.pool: Final = BufferPool(config.buffer_memory, config.batch_size, slab=slab)
        self.map: Final = PartitionMap(slab)
        self.format: Final = record_format(message_format_magic(config.message_format_version))
        self.acks: Final = slab.companion(Acknowledgements)
        self.acks.absence = self.map.absence
        for stripe in range(STRIPES):
            slab.locks[LOCK_STRIPES + stripe].rebuild = _stripe_rebuilder(slab, stripe)
        compression = CompressionType.for_name(config.compression_type)
        compressor = BatchCompressor(slab, self.format, compression, levels_of(config))
        self.appender: Final = BatchAppender(slab, self.pool, self.format, self.acks, compressor, config.linger_ms)
        self._columns: ColumnAppender | None = None  # not every program sends columns
        self.sequences: Final = Sequences(slab, enabled=config.enable_idempotence)
        patience = Patience()
        returns = BatchReturns(self.map, patience)
        growing = GrowingBatches(slab, self.pool)
        self._growing = growing
        self._completer = BatchCompleter(slab, self.pool, self.map, returns, self.sequences, patience)
        self.patience: Final = patience
        self._returns = returns
        self._ready_check = ReadyCheck(
            slab,
            self.pool,
            self.map,
            self.sequences,
            patience,
            returns,
            growing,
            backoff=RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            max_in_flight=config.max_in_flight_requests_per_connection,
        )
        self._drainer = BatchDrainer(
            slab, self.map, self._completer, self.sequences, self._ready_check, patience, returns, growing
        )
        self.limits: Final = DeliveryLimits(slab, config.delivery_timeout_ms, config.retries)
        self._expirer = BatchExpirer(slab, self.map, self._completer, patience, returns, self.limits)

    # --- the producers' half ------------------------------------------------------------------------

    def append(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        callback: DeliveryCallback | None = None,
        max_block_ms: float = 60_000,
    ) -> RecordAppendResult:
        """Append a record to its partition's last batch, or to a new one. It is in the slab on return.

        Args:
            topic_partition: a partition that the map has.
            timestamp: milliseconds since the epoch.
            key: bytes-like, or None.
            value: bytes-like, or None.
            headers: names and values.
            callback: called when the record is done, by this process and whenever it next polls.
            max_block_ms: how long to wait for memory.

        Raises:
            UnknownTopicOrPartitionError: the partition is not known.
            InvalidTimestampError: the timestamp is negative, or takes more than 63 bits.
            BufferExhaustedError: there was no memory in time.
            RecordTooLargeError: the record is larger than all the memory there is.
            ProducerClosedError: this process has closed its accumulator.
            SerializationError, UnsupportedForMessageFormatError: the format cannot hold the record.
        """
        queue = self.map.queue(topic_partition)
        if queue is None:
            raise UnknownTopicOrPartitionError(f"{topic_partition} is not a partition that is known here")
        check_timestamp(timestamp)
        body = self.format.encode_body(key, value, headers)
        sizes = sizes_word(None if key is None else len(key), None if value is None else len(value))
        return RecordAppendResult(*self.appender.append(queue, timestamp, body, callback, max_block_ms, None, sizes))

    def append_columns(
        self, topic_partition: TopicPartition, bodies: ColumnBodies, future: FutureColumnsMetadata, max_block_ms: float
    ) -> None:
        """Append rows of columns to a partition, vectorised; ``future`` takes them in.

        Raises:
            UnknownTopicOrPartitionError: the partition is not known.
            BufferExhaustedError: there was no memory in time; the rows before are in.
            ProducerClosedError: this process has closed its accumulator.
        """
        queue = self.map.queue(topic_partition)
        if queue is None:
            raise UnknownTopicOrPartitionError(f"{topic_partition} is not a partition that is known here")
        if self._columns is None:
            from shmaccum.accumulator.column_appender import ColumnAppender

            self._columns = ColumnAppender(self.appender)
        self._columns.append(queue, bodies, future, time.monotonic() + max_block_ms / 1000)

    def begin_flush(self) -> None:
        """Make everything in the slab sendable at once, until `await_flush_completion` returns."""
        self.acks.begin_flush()

    def await_flush_completion(self, timeout_s: float | None = None) -> None:
        """Wait until all that this process has appended so far is done, acknowledged or given up.

        Raises:
            KafkaTimeoutError: some of it is not after ``timeout_s``; it stays in the slab and is sent on.
        """
        pending = self.acks.incomplete()
        has_callbacks = self.acks.has_callbacks()  # which are not to wait for other batches

        def all_done() -> bool:
            if pending and pending[len(pending) - 1].done:
                pending[:] = [result for result in pending if not result.done]
            return not pending

        def waited_for() -> int:
            pending[:] = [result for result in pending if not result.done]
            return 1 if has_callbacks else len(pending)

        try:
            if not self.acks.wait_until(all_done, timeout_s, waited_for):
                raise KafkaTimeoutError(
                    f"{len(pending)} batches are not acknowledged after {timeout_s} s; they stay in the slab and will "
                    f"be sent, but this producer will not hear of it{self.acks.trouble()}"
                )
        finally:
            self.acks.end_flush()

    def settle(self) -> None:
        """Take back what an interrupt kept this thread from taking back: a flush, memory for a batch."""
        if not is_reentrant():
            self.acks.settle()
            self.appender.settle()

    def close(self) -> None:
        """Take no more records from this process; its waits for memory end. The others go on."""
        self.appender.close()
        self.pool.close()

    # --- the sender's half --------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Find the nodes to which something can be sent.

        A partition's first batch is sendable if it is full or has lingered for ``linger.ms``, if memory is
        exhausted, or if a flush or the sender's shutdown is in progress; and ready if it does not back off after a
        failed attempt, its partition is not muted, does not wait for what becomes of sequence numbers given before,
        and has a known leader. Without a producer id, where there must be one, nothing is ready.

        Args:
            cluster: what is known of the cluster.
            now_ms: monotonic milliseconds.
        """
        self._completer.retry()
        self._returns.retry()
        return self._ready_check.ready(cluster, now_ms)

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, now_ms: int
    ) -> dict[int, list[RecordBatch]]:
        """Take batches out of the deques: by node id, at most one a partition and ``max_size`` bytes a node.

        A first batch larger than ``max_size`` is taken all the same. The partitions of a node take turns in being
        the first, so that none starves.
        """
        return self._drainer.drain(cluster, nodes, max_size, now_ms)

    def rest_after(self, began_ms: float, ended_ms: float) -> None:
        """Have open batches grow for a while, if it was many of them that what was drained was sent in this time.

        Args:
            began_ms: monotonic milliseconds when the sender began to drain, for all nodes.
            ended_ms: when it had sent the last of it.
        """
        self._growing.rest_after(began_ms, ended_ms)

    def has_backlog(self, node: Node) -> bool:
        """Say whether the last `drain` has left full batches to the node that could go in a next request at once."""
        return self._drainer.has_backlog(node)

    def mute(self, topic_partition: TopicPartition) -> None:
        """Send nothing of a partition until `unmute`: a batch of it is in flight, and order matters."""
        self._drainer.mute(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        """Take a `mute` back."""
        self._drainer.unmute(topic_partition)

    def reenqueue(self, batch: RecordBatch, now_ms: int, incident: int = 0) -> None:
        """Put a batch that failed by reason of an incident, and may succeed later, back in front of all behind it."""
        self._drainer.reenqueue(batch, now_ms, incident)

    def put_back(self, batch: RecordBatch) -> None:
        """Put a batch that came back, and is to be sent otherwise, to its place: that was no attempt."""
        self._drainer.put_back(batch)

    def can_tell_of_a_piece(self, batch: RecordBatch, pieces_in_flight: int) -> bool:
        """Say whether one more piece can be sent: all who wait for the batch can be told of it."""
        return self._completer.can_tell_of_a_piece(batch, pieces_in_flight)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Tell everybody who contributed what became of their batches in flight; free the slots of those done."""
        self._completer.complete(outcomes)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that expired in flight, now that it is answered; ``stored`` if it came through after all."""
        self._completer.release(batch, stored=stored)

    @property
    def next_expiry_ms(self) -> float:
        """Monotonic milliseconds before which no batch, queued or in flight, expires."""
        return self._expirer.next_expiry_ms

    def abort_expired_batches(self, now_ms: int) -> list[BatchOutcome]:
        """Give up the batches that are older than their ``delivery.timeout.ms``; return what was given up.

        One that is in flight keeps its slot until `release`: the transport may still be sending from it.
        """
        return self._expirer.abort_expired_batches(now_ms)

    def abort_incomplete_batches(self, error: type[KafkaError], incident: int = 0) -> list[BatchOutcome]:
        """Give up everything that is queued, by reason of an incident; return what was given up."""
        return self._expirer.abort_incomplete_batches(error, incident)

    def recover(self) -> None:
        """Go on where the last sender died: finish what was completing, put back what was in flight.

        What dead processes have left behind gets its ``delivery.timeout.ms`` anew.
        """
        self._drainer.recover()
        self._expirer.renew_orphans(time.monotonic_ns() // 1_000_000)

    def apply(self, config: ProducerConfig) -> None:
        """Work by other values of the settings that the users of the slab share."""
        self._ready_check.backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def send_all(self) -> None:
        """Make everything sendable at once from now on: the sender is about to leave."""
        self._ready_check.closed = True


def attach_for(config: ProducerConfig, *, decides: bool = True, sender: bool = False) -> Slab:
    """Attach this process to the slab of a configuration, creating it if there is none; empty slabs of the dead go.

    Args:
        config: the settings.
        decides: whether its values of the settings that the users of a slab share are to hold from now on.
        sender: whether this process is to be the slab's sender.

    Raises:
        As `attach_making_room`.
    """
    uid = os.geteuid()
    name = config.slab_name(uid)
    sweep(spare=name)
    mine = UserSettings(config.fixed_settings(), config.shared_settings(), __version__, decides)
    return attach_making_room(name, slab_geometry(config), config.slab_digest(uid), mine, sender=sender)


def slab_geometry(config: ProducerConfig) -> Geometry:
    """Return the layout of a slab that is made with these settings.

    The redo areas, without which producers do not compress, depend on who makes it: they are left out only where they
    would take much memory, and the maker does not compress.
    """
    slot_size = slot_size_for(config.batch_size)
    ahead = record_format(message_format_magic(config.message_format_version)).compresses_ahead
    are_cheap = STRIPES * slot_size <= config.buffer_memory // _REDO_SHARE
    producers_compress = ahead and (are_cheap or config.compression_type != str(CompressionType.NONE))
    return Geometry(
        slot_size,
        max(1, config.buffer_memory // slot_size),
        config.shmaccum_max_processes,
        config.shmaccum_max_topics,
        config.shmaccum_max_partitions,
        slot_size if producers_compress else 0,
    )


def _stripe_rebuilder(slab: Slab, stripe: int) -> Callable[[], None]:
    return lambda: rebuild_stripe(slab, stripe)
