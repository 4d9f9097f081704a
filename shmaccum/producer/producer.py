"""The Producer, which users import.

A thin layer over the paths of records and of columns into the slab. All producers of a host with the same slab settings
share that, and its one sender process does the rest.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import time
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self

from shmaccum import _core
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.state.accumulator_state import AccumulatorState, attach_for
from shmaccum.cluster import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.config.settingsfile import read_settings
from shmaccum.errors import (
    ApiVersionError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    SerializationError,
    ShmaccumError,
)
from shmaccum.observe import kafka_metrics
from shmaccum.producer.destinations import Destinations
from shmaccum.producer.record_path import CallGuard, RecordPath
from shmaccum.producer.serialization import Serializers
from shmaccum.sender.process import SenderWatch, ensure_sender, tend_shards
from shmaccum.sender.watch import WatchThread
from shmaccum.shm import native
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import detach

if TYPE_CHECKING:
    from shmaccum.producer.column_path import ColumnPath
    from shmaccum.producer.interceptors import Interceptors
    from shmaccum.record.columns import ArrowRows
    from shmaccum.transactions.manager import TransactionManager

logger = logging.getLogger(__name__)


class Producer(_core.Producer):
    """A Kafka producer that shares batches, memory and sender with all processes of the host.

    Any number of threads can use it. In a forked child it works on, as a new process of the slab; futures made before
    the fork belong to the parent. Close it by `close`, or use it as a context manager. An accepted record is sent even
    if the process is killed right after.

    Args:
        config: settings by Kafka's names (see docs/configuration.md), or a `ProducerConfig`.

    Raises:
        ConfigError: a setting is unknown, has a wrong value, or contradicts another.
        SlabError: the slab cannot be created or used; names the reason.
        SenderError: there was no sender, and none could be started.
    """

    def __init__(self, config: Mapping[str, object] | ProducerConfig) -> None:
        self.config = config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
        self._serializers = Serializers(self.config.key_serializer, self.config.value_serializer)
        self._interceptors: Interceptors | None = None  # they import much
        self._is_closing = False
        """Whether a call of `close` is under way."""
        self._columns: ColumnPath | None = None  # not every program sends columns
        self._transactions: TransactionManager | None = None  # nor in transactions
        try:
            if self.config.interceptor_classes:
                from shmaccum.producer.interceptors import Interceptors

                self._interceptors = Interceptors(self.config.interceptor_classes)
            self._open()
        except BaseException:
            self._close_interceptors()
            self._serializers.close()
            raise
        self._guard.closed = False  # no call since the attach: an interrupt in one would leak the attached slab

    def _close_interceptors(self) -> None:
        if self._interceptors is not None:
            self._interceptors.close()

    def _open(self) -> None:
        """Attach to the slab and make sure that it has a sender."""
        self._slab = slab = attach_for(self.config)
        self._attached: list[None] = [None]
        try:
            config = self.config.in_slab(slab.name)
            self._ensure_sender = partial(ensure_sender, slab, config)
            self._watch = SenderWatch(slab, self._ensure_sender)
            with slab.reporting_damage():
                state = AccumulatorState(slab, config, self._ensure_sender)
                self._accumulator = RecordAccumulator(state, config, self._watch)
            self._guard = CallGuard(self._accumulator)
            self._destinations = Destinations(self._accumulator, config)
            if config.transactional_id:
                from shmaccum.transactions.manager import TransactionManager

                self._transactions = TransactionManager(config, self._accumulator)
            self._records = RecordPath(
                config,
                self._accumulator,
                self._destinations,
                self._interceptors,
                self._serializers,
                self._guard,
                self._watch.has_sender,
                self._transactions,
            )
            self._started_ms = time.time_ns() // 1_000_000
            self._rates = kafka_metrics.Rates(self._totals())
            slab.set_lock_timeout(self._lock_timeout_s())
            slab.add_role(Role.PRODUCER)
            self._ensure_sender()
            watch = slab.companion(WatchThread)
            watch.watch_for(self._accumulator, self._ensure_sender, partial(tend_shards, config))
            _made.add(self)
        except BaseException:
            detach(slab, self._attached)
            raise

    def _lock_timeout_s(self) -> float:
        """Return how long a call waits for a lock of a stopped process."""
        return self.config.max_block_ms / 1000

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return a producer with the settings of a file: Java properties, as Kafka's own tools read them, or JSON.

        Raises:
            ConfigError: the file cannot be read, or is neither; and all that the constructor raises.
        """
        return cls(read_settings(path))

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def __repr__(self) -> str:
        closed = ", closed" if self._guard.closed else ""
        return f"<Producer {self.config.client_id!r} of slab {self._slab.name!r}{closed}>"

    # --- sending ------------------------------------------------------------------------------------

    def send_batch(self, topic: str, batch: ArrowRows) -> FutureColumnsMetadata:
        """Send all rows of an Arrow batch, vectorised: no Python runs per row.

        Args:
            topic: the topic.
            batch: a ``pyarrow.RecordBatch``, or anything that exports Arrow data by ``__arrow_c_array__`` or
                ``__arrow_c_stream__``, as polars' frames and duckdb's relations do; rows in several chunks are copied
                into one. Columns ``key`` and ``value`` (binary or string), ``partition`` (integer), ``headers``
                (list<struct<key: string, value: binary>>) and ``timestamp`` (a timestamp, or integer milliseconds
                since the epoch). All are optional; a null means "not given".

        Returns:
            One future for all rows.

        Raises:
            SerializationError: a column is unknown or of the wrong type, or serializers or interceptors, which work
                record by record, are set.
            ApiVersionError: there is no pyarrow.
            KafkaError: as `send`.

        An error can come halfway: memory runs out, another thread closes the producer or ends the transaction, there
        is no sender, a lock is held, the slab is damaged. Then the error's `ShmaccumError.accepted` is the future of
        the rows that are accepted and will be sent; it is None if there are none. Its ``rows`` are their numbers.
        """
        transaction = self._records.transaction
        self._guard.check_open()
        path = self._column_path()
        rows = path.rows_of(batch)
        future = path.future_for(rows)
        try:
            with future.reporting(), self._guard:
                try:
                    self._accumulator.block(path.sending(topic, rows, future, transaction))
                except KafkaError as error:
                    if transaction is not None:
                        self.transactions.refused(error, transaction)
                    raise
        except ShmaccumError as error:
            self._records.count_refusal(topic, error)
            raise
        return future

    def _column_path(self) -> ColumnPath:
        """Return the path of columns, made on first use.

        Raises SerializationError: `send_batch` says when. Raises ApiVersionError: there is no pyarrow.
        """
        if self._records.is_record_by_record:
            raise SerializationError(
                "send_batch takes columns of bytes or text as they are; a producer with key.serializer, "
                "value.serializer or interceptor.classes sends record by record"
            )
        if self._columns is None:
            try:
                from shmaccum.producer.column_path import ColumnPath
            except ImportError as missing:
                raise ApiVersionError(
                    f"send_batch needs the library pyarrow ({missing}): pip install 'shmaccum[arrow]'"
                ) from missing
            self._columns = ColumnPath(self._accumulator, self._destinations)
        return self._columns

    # --- transactions -------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take the ``transactional.id`` over: fence every other producer with it, and abort what it left open.

        Call it once, before the first transaction.

        Raises:
            IllegalStateError: there is no ``transactional.id``, or it was called before.
            KafkaTimeoutError: no coordinator answered within ``max.block.ms``; it can be called again.
            SlabFullError: the slab has no room for another transaction.
            TransactionalIdAuthorizationError: the user is not authorized for the id; it can be called again.
            KafkaError: the coordinator refused, as an InvalidTxnTimeoutError says of ``transaction.timeout.ms``.
        """
        with self._guard:
            self.transactions.init()

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on becomes visible when it is committed, all at once.

        Raises:
            IllegalStateError: there is no ``transactional.id``, no `init_transactions`, or a transaction already.
            ProducerFencedError: another producer with the id has called `init_transactions`: close this one.
        """
        with self._guard:
            self.transactions.begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer group's offsets with the transaction.

        Args:
            offsets: of the next records to read, by partition.
            group_metadata: of the consumer: any object with ``group_id``, ``generation_id``, ``member_id`` and
                ``group_instance_id``.

        Raises:
            IllegalArgumentError: ``group_metadata`` is no such object, or ``offsets`` are none.
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: no coordinator answered within ``max.block.ms``: call it again, or abort the transaction.
            UnsupportedVersionError: the coordinator cannot check the group's generation and member.
            KafkaError: the group has gone on without this member, or the coordinator refused: abort the transaction.
        """
        with self._guard:
            self.transactions.send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Commit the transaction: wait until all that it sent is stored, then make it visible.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: not done within ``max.block.ms``; only this call can follow, to go on.
            ProducerFencedError: another producer with the id has called `init_transactions`: close this one.
            KafkaError: a record was not stored, or the coordinator refused: abort the transaction.
        """
        with self._guard:
            self.transactions.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction: drop what is not sent yet, and keep what was sent invisible.

        The futures of dropped records fail with TransactionAbortedError.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaTimeoutError: not done within ``max.block.ms``; only this call can follow, to go on.
            ProducerFencedError: another producer with the id has called `init_transactions`: close this one.
        """
        with self._guard:
            self.transactions.abort()

    @property
    def transactions(self) -> TransactionManager:
        """The transactions themselves, for a sink whose transactions other processes end.

        Raises:
            IllegalStateError: there is no ``transactional.id``.
        """
        if self._transactions is None:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the transactional.id "
                "configuration property"
            )
        return self._transactions

    # --- metadata -----------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
        """
        with self._guard:
            _, queues = self._accumulator.block(self._destinations.topic(topic, time.monotonic()))
            return set(range(len(queues)))

    # --- waiting ------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> None:
        """Resolve futures and run callbacks of complete records; wait for one up to ``timeout`` s.

        Raises:
            IllegalArgumentError: ``timeout`` is no number.
            SenderError: records are pending, but there was no sender, and none could be started.
        """
        _check_number(timeout)
        with self._guard:
            pending = self._accumulator.pending
            pending.check_process()
            if timeout > 0:
                heard = pending.heard()
                pending.wait_until(lambda: pending.heard() != heard, timeout)
            elif pending.is_waiting():
                self._watch()
            pending.poll()

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once; wait until all records sent before are acknowledged or have failed.

        Their callbacks have run then, unless the call comes from a callback. A closed producer has nothing to wait for:
        the call does nothing then.

        Args:
            timeout: seconds; by default no limit (``delivery.timeout.ms`` bounds the wait).

        Raises:
            IllegalArgumentError: ``timeout`` is negative.
            KafkaTimeoutError: some are pending after ``timeout``; they stay in the slab and will be sent. Or another
                thread still runs callbacks.
            SenderError: there was no sender, and none could be started; the next sender sends them.
        """
        check_timeout(timeout)
        if not self._attached:
            return
        with self._guard:
            self._accumulator.pending.check_process()
            with self._destinations.times.call("flush"):
                self._accumulator.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush and leave the slab. A second call does nothing, or finishes the first after an interrupt.

        Args:
            timeout: seconds to wait for pending records; 0 for no wait. Records not acknowledged by then stay in the
                slab and will be sent, but their futures here never resolve.

        Raises:
            IllegalArgumentError: ``timeout`` is negative: the producer stays open.
            KafkaTimeoutError: records were not acknowledged within ``timeout`` (other than 0).
            SenderError: there was no sender, and none could be started; the next sender sends them.
            KafkaError: a serializer's ``close`` failed; the producer is closed.
        """
        check_timeout(timeout)
        if not self._attached or self._is_closing:
            return  # closed already, or called by another thread, or by a callback or handler that runs in `_close`
        # No call between the look and the store, nor before the store below: no thread or handler runs in between.
        self._is_closing = True
        try:
            self._close(timeout)
        except BaseException as error:
            self._guard.clean_up(error)
            raise
        finally:
            self._is_closing = False

    def _close(self, timeout: float | None) -> None:
        self._guard.closed = True
        try:
            if self._transactions is not None:
                self._transactions.close(timeout)
            self._accumulator.close()
            self._accumulator.pending.check_process()
            if timeout != 0:
                self._accumulator.flush(timeout)
        finally:
            try:
                self._close_interceptors()
                failure = self._serializers.close()
                self._accumulator.clean_up()
            finally:
                detach(self._slab, self._attached)
        if failure is not None:
            raise KafkaError("Failed to close the producer") from failure

    def _leave_deserted(self) -> None:
        """Close at interpreter exit if no other process can remove the slab and it has no records."""
        slab = self._slab
        try:
            if self._guard.closed or slab.processes.me < 0 or slab.has_sender() or slab.processes.others_alive():
                return
            if slab.undelivered() == (0, 0):
                self.close(timeout=0)
        except (ShmaccumError, OSError) as error:
            logger.debug("slab %r not removed at exit: %s", slab.name, error)  # the user's next process sweeps it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    @property
    def incidents(self) -> Incidents:
        """What has gone wrong between the sender and the brokers, for all users of the slab.

        Raises:
            ProducerClosedError: the producer is closed.
        """
        with self._guard:
            return self._slab.incidents

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by Kafka's names, in groups.

        docs/monitoring/kafka-metrics.md has every name that Kafka's producer has, and says which of them are here, and
        which are the slab's: those count what all processes of the host have sent.

        * ``producer-metrics``: Kafka's, and of this process: ``record-append-total``, ``byte-append-total``,
          ``batch-create-total``, ``incomplete-batches``.
        * ``producer-node-metrics.node-ID``, of each broker; ``producer-topic-metrics.TOPIC``.
        * ``slab-metrics``, as in ``shmaccum status --json``. There ``record-send-total``, ``batch-send-total``,
          ``byte-total`` and the means count what brokers have acknowledged, and ``request-total`` Produce requests.
        * ``app-info`` and ``kafka-metrics-count``.

        Times are milliseconds where the name does not say ``ns``, sizes are bytes. A mean or maximum is over the life
        of the slab, a rate a second over the last 30 to 60 seconds, and before that since this producer began.
        """
        with self._guard:
            self._accumulator.pending.check_process()
            groups = self._rates.added_to(self._totals())
        count = sum(map(len, groups.values())) + 1
        return groups | {"kafka-metrics-count": {"count": count}}

    def _totals(self) -> kafka_metrics.Groups:
        """Return the metrics without rates."""
        words, geometry = self._slab.words, self._slab.geometry
        pool = self._accumulator.state.pool
        no_calls = kafka_metrics.CallTimes(kafka_metrics.TRANSACTION_CALLS)
        kafkas = kafka_metrics.kafkas_of_slab(words, geometry)
        logs_in = self.config.security_protocol != "PLAINTEXT"
        producer = {
            **kafkas,
            "successful-authentication-total": kafkas["connection-creation-total"] if logs_in else 0,
            **kafka_metrics.process_metrics(words, geometry, self._slab.me),
            "bufferpool-wait-ratio": pool.wait_ratio(),
            "waiting-threads": pool.queued(),
            "incomplete-batches": len(self._accumulator.pending.incomplete()),
            **self._destinations.times.metrics(),
            **(no_calls if self._transactions is None else self._transactions.times).metrics(),
        }
        return {
            "producer-metrics": producer,
            **kafka_metrics.node_metrics(words, geometry),
            **kafka_metrics.topic_metrics(words, geometry),
            "slab-metrics": kafka_metrics.slab_metrics(words, geometry),
            "app-info": {"start-time-ms": self._started_ms},
        }


def no_pickle(producer: object) -> TypeError:
    """Return the error for a producer that shall go to another process, or be copied."""
    return TypeError(
        f"a {type(producer).__name__} cannot be pickled or copied: make one in the process that uses it, such as each "
        "worker; all producers of a host with the same settings share one slab and one sender"
    )


def _check_number(timeout: float) -> None:
    try:
        math.isnan(timeout)
    except (TypeError, OverflowError):
        raise IllegalArgumentError(f"timeout = {timeout!r:.60}: must be a number of seconds") from None


def check_timeout(timeout: float | None) -> None:
    """Raise an IllegalArgumentError unless a timeout is None or a number of seconds from 0 on."""
    if timeout is None:
        return
    _check_number(timeout)
    if not timeout >= 0:  # also rejects NaN
        raise IllegalArgumentError(f"timeout = {timeout}: must be at least 0 s, or None for no limit")


_made: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _leave_deserted_slabs() -> None:
    for producer in native.members(_made):
        producer._leave_deserted()
