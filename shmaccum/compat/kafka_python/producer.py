"""kafka-python's ``KafkaProducer``, over the shared slab."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Self

try:
    import kafka.errors as theirs
    from kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner
except ImportError as error:
    raise ImportError(
        f"shmaccum.compat.kafka_python needs kafka-python 3: pip install 'shmaccum[kafka-python]' ({error})"
    ) from error

from shmaccum import cluster, errors
from shmaccum.compat.kafka_python.futures import CallbackThread, FutureRecordMetadata, raising_their_errors, their_error
from shmaccum.compat.kafka_python.settings import THEIR_DEFAULTS, translate
from shmaccum.producer.producer import Producer, no_pickle

_BYTES: Final = (bytes, bytearray, memoryview, type(None))
_CHOOSE_AS_OURS: Final = (DefaultPartitioner, StickyPartitioner)
"""Partitioners that are not called; a class derived from one is."""


class KafkaProducer:
    """A producer with kafka-python's methods.

    Args:
        configs: kafka-python's settings. Our own, such as ``shmaccum_name``, can be among them.

    Raises:
        ValueError: there is no such setting.
        KafkaConfigurationError: a setting is refused, has a wrong value, or contradicts another.
        KafkaError: the slab cannot be used.
    """

    DEFAULT_CONFIG: Final[Mapping[str, Any]] = THEIR_DEFAULTS

    def __init__(self, **configs: Any) -> None:
        self._closed = True
        self._has_transactions = False
        settings = translate(configs)
        self.config: dict[str, Any] = {**THEIR_DEFAULTS, **configs}
        self.config["acks"] = -1 if settings.acks == "all" else int(settings.acks)
        self.config["enable_idempotence"] = settings.enable_idempotence
        partitioner = self.config["partitioner"]
        self._partitioner = None if type(partitioner) in _CHOOSE_AS_OURS else partitioner
        with raising_their_errors():
            self._producer = Producer(settings)
        self.config["client_id"] = settings.client_id
        self._callbacks = CallbackThread(self._producer)
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def __str__(self) -> str:
        return (
            f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"
        )

    def _open(self) -> Producer:
        if self._closed:
            raise theirs.IllegalStateError("KafkaProducer already closed!")
        return self._producer

    # --- sending ------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record, and return its future.

        Raises:
            KafkaTimeoutError: no metadata of the topic, or no memory, within ``max_block_ms``.
            TypeError: an argument has the wrong type.
            ValueError: key and value are both None; the topic's name is not allowed; there is no such partition.
            MessageSizeTooLargeError: the record is larger than ``max_request_size``.
            InvalidTimestampError: the timestamp is negative, or takes more than 63 bits.
            IllegalStateError: the producer is closed, or there is no transaction.
        """
        producer = self._open()
        transaction = producer._records.transaction
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        headers = [] if headers is None else headers
        if not isinstance(headers, list):
            raise TypeError("headers must be list-type")
        if not all(map(_is_header, headers)):
            raise TypeError("All headers items must be (str, bytes) tuples")
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        if partition is not None:
            partition = int(operator.index(partition))  # it can be numpy's
        key_bytes = _serialize(self.config["key_serializer"], topic, headers, key)
        value_bytes = _serialize(self.config["value_serializer"], topic, headers, value)
        for what, data in (("key", key_bytes), ("value", value_bytes)):
            if type(data) not in _BYTES:
                raise TypeError(f"Unsupported type for serialized {what}: {type(data)}")
        header_size = sum(len(name.encode()) + len(data) for name, data in headers) if headers else -1
        try:
            if partition is None and self._partitioner is not None:
                partition = self._choose(topic, key, key_bytes, value, value_bytes)
            path = producer._records
            future = path.send_in(transaction, topic, value_bytes, key_bytes, headers, partition, timestamp_ms, None)
        except (errors.InvalidTopicError, errors.UnknownTopicOrPartitionError) as error:
            raise ValueError(str(error)) from error
        except errors.SerializationError as error:
            raise TypeError(str(error)) from error
        except errors.InvalidTimestampError as error:
            if not isinstance(timestamp_ms, int):
                raise TypeError(str(error)) from error
            raise their_error(error) from error
        except errors.ShmaccumError as error:
            if (
                isinstance(error, errors.KafkaError)
                and error.code > 0
                and not isinstance(error, errors.RecordTooLargeError)
            ):
                failure = their_error(error)  # the brokers' answer: kafka-python returns a failed future
                return FutureRecordMetadata(producer, self._callbacks, None, failure, header_size)
            if isinstance(error, errors.KafkaError) and partition is not None and partition < 0:
                raise ValueError("partition must be >= 0") from error
            raise their_error(error) from error
        return FutureRecordMetadata(producer, self._callbacks, future, None, header_size)

    def _choose(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any) -> int:
        assert self._partitioner is not None
        known = _Cluster(topic, self._producer.partitions_for(topic))
        if isinstance(self._partitioner, Partitioner):
            partition = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, known)
        else:
            partition = self._partitioner.partition(topic, key_bytes, known)  # the form of before 3.0
        if partition is None:
            raise ValueError(f"Partitioner did not assign a partition for topic {topic}!")
        return int(partition)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, and wait until all records sent before are acknowledged or have failed.

        A closed producer has nothing to wait for: the call does nothing then, as kafka-python's.

        Raises KafkaTimeoutError: some are pending after ``timeout`` s.
        """
        if not self._closed:
            with raising_their_errors():
                self._producer.flush(timeout)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Flush, run callbacks, and leave the slab.

        Raises:
            ValueError: ``timeout`` is negative.
            KafkaTimeoutError: records were not acknowledged within ``timeout`` s; they stay in the slab.
        """
        if self._closed:
            return
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"Invalid timeout: {timeout}")
        self._closed = True
        try:
            with raising_their_errors():
                self._producer.close(timeout)
        finally:
            self._callbacks.stop()
            for name in ("key_serializer", "value_serializer"):
                close = getattr(self.config[name], "close", None)
                if callable(close):
                    close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    # --- looking ------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Raises KafkaTimeoutError: none within ``max_block_ms``."""
        with raising_their_errors():
            return self._open().partitions_for(topic)

    def bootstrap_connected(self) -> bool:
        """Return whether a broker has let the sender in."""
        producer = self._open()
        with raising_their_errors(), producer._guard:  # another thread can close it
            return producer._slab.incidents.has_been_let_in

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """Return metrics by Kafka's names, in groups; None with ``metrics_enabled=False``.

        Raises NotImplementedError: ``raw`` asks for kafka-python's own objects.
        """
        if raw:
            raise NotImplementedError("metrics(raw=True) returns kafka-python's own objects, which there are none of")
        with raising_their_errors():
            return self._open().metrics() if self.config["metrics_enabled"] else None

    # --- transactions -------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """See `shmaccum.Producer.init_transactions`; does nothing once that has succeeded."""
        producer = self._open()
        if not self._has_transactions:
            with raising_their_errors():
                producer.init_transactions()
            self._has_transactions = True

    def begin_transaction(self) -> None:
        """See `shmaccum.Producer.begin_transaction`."""
        with raising_their_errors():
            self._open().begin_transaction()

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """Commit a consumer group's offsets with the transaction.

        Args:
            offsets: kafka-python's OffsetAndMetadata, by its TopicPartition.
            group_metadata: a group's id, or what a consumer says of its group.
        """
        if isinstance(group_metadata, str):
            group_metadata = cluster.ConsumerGroupMetadata(group_metadata)
        ours = {
            cluster.TopicPartition(*where): cluster.OffsetAndMetadata(
                each.offset, each.metadata or "", each.leader_epoch
            )
            for where, each in offsets.items()
        }
        with raising_their_errors():
            self._open().send_offsets_to_transaction(ours, group_metadata)

    def commit_transaction(self) -> None:
        """See `shmaccum.Producer.commit_transaction`."""
        with raising_their_errors():
            self._open().commit_transaction()

    def abort_transaction(self) -> None:
        """See `shmaccum.Producer.abort_transaction`."""
        with raising_their_errors():
            self._open().abort_transaction()


class _Cluster:
    """What a partitioner can ask of kafka-python's ClusterMetadata, for one topic."""

    def __init__(self, topic: str, partitions: set[int]) -> None:
        self._topic = topic
        self._partitions = partitions

    def topics(self) -> set[str]:
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions if topic == self._topic else None

    available_partitions_for_topic = partitions_for_topic


def _is_header(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], bytes)


def _serialize(serializer: Any, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
    """Serialize a key or value: by an object with ``serialize``, of either form, or by a callable."""
    if serializer is None:
        return data
    serialize = getattr(serializer, "serialize", None)
    if serialize is None:
        return serializer(data)
    try:
        return serialize(topic, headers, data)
    except TypeError:
        return serialize(topic, data)  # as kafka-python calls those of before 3.0
