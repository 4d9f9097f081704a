"""confluent-kafka's ``SerializingProducer``: serializers take an object and a SerializationContext.

Any callable of that form works, so the serializers of ``confluent_kafka.schema_registry`` do, unchanged. They bring
their own client of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from shmaccum.compat.confluent.arguments import DeliveryCallback
from shmaccum.compat.confluent.calls import PARTITION_UA
from shmaccum.compat.confluent.errors import KafkaException, new_error
from shmaccum.compat.confluent.producer import Producer

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers bring it

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")


class StandInSerializationContext:
    """``confluent_kafka.serialization.SerializationContext``, for programs without confluent-kafka."""

    def __init__(self, topic: str, field: str, headers: Any = None) -> None:
        self.topic, self.field, self.headers = topic, field, headers


class StandInSerializationError(KafkaException):  # type: ignore[misc]
    """A serializer failed: ``exception`` is why, ``code`` and ``name`` are librdkafka's."""

    def __init__(self, kafka_error: Any, exception: Exception | None = None) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.code, self.name = kafka_error.code(), kafka_error.name()


def _context(topic: str, field: str, headers: Any) -> Any:
    try:
        from confluent_kafka.serialization import MessageField, SerializationContext
    except ImportError:
        return StandInSerializationContext(topic, field, headers)
    return SerializationContext(topic, MessageField(field), headers)


def _failure(field: str, error: Exception) -> Exception:
    try:
        from confluent_kafka.error import KeySerializationError, ValueSerializationError
    except ImportError:
        return StandInSerializationError(new_error(f"_{field.upper()}_SERIALIZATION", str(error)), error)
    failure: Exception = KeySerializationError(error) if field == "key" else ValueSerializationError(error)
    return failure


def _serialized(serializer: Any, data: Any, topic: str, field: str, headers: Any) -> Any:
    if serializer is None:
        return data
    try:
        return serializer(data, _context(topic, field, headers))
    except Exception as error:
        raise _failure(field, error) from error


def _serializer(settings: dict[str, Any], field: str, built: list[Any]) -> Any:
    """Return the serializer that settings give, and take it out of them; ``built`` gets one that a builder made."""
    name = f"{field}.serializer"
    serializer, builder = settings.pop(name, None), settings.pop(f"{name}.builder", None)
    if builder is None:
        return serializer
    if serializer is not None:
        raise ValueError(f"Cannot configure both {name} and {name}.builder; use one or the other")
    serializer, rest = builder.build(dict(settings), field == "key")
    settings.clear()
    settings.update(rest)
    built.append(serializer)
    return serializer


def _close_all(serializers: list[Any]) -> None:
    while serializers:
        close = getattr(serializers.pop(0), "close", None)
        if callable(close):
            close()


class SerializingProducer(Producer, Generic[K, V]):
    """A producer of keys K and values V with ``key.serializer`` and ``value.serializer``, or their ``.builder``.

    Args:
        conf: the serializers, and the settings of `Producer`.

    Raises:
        ValueError: a serializer and its builder are both given.
        KafkaException: as `Producer`.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        settings, built = dict(conf), list[Any]()
        self._key_serializer = _serializer(settings, "key", built)  # named as there: ddtrace calls it
        self._value_serializer = _serializer(settings, "value", built)
        self._shm.serializers = built
        try:
            super().__init__(settings)
        except BaseException:
            _close_all(built)
            raise
        for serializer in (self._key_serializer, self._value_serializer):
            set_resolver = getattr(serializer, "set_cluster_id_resolver", None)
            if callable(set_resolver):
                set_resolver(self.cluster_id)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = PARTITION_UA,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize and send a message. As in confluent-kafka, the key comes before the value here.

        Raises:
            KafkaException: a serializer failed (KeySerializationError, ValueSerializationError); or as `Producer`.
            BufferError, TypeError, RuntimeError: as `Producer`.
        """
        transaction = self._shm.opened()._records.transaction
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        key_bytes = _serialized(self._key_serializer, key, topic, "key", headers)
        value_bytes = _serialized(self._value_serializer, value, topic, "value", headers)
        if transaction is None:
            super().produce(topic, value_bytes, key_bytes, partition, on_delivery, timestamp=timestamp, headers=headers)
        else:
            self._shm.produce(topic, value_bytes, key_bytes, partition, on_delivery, timestamp, headers, transaction)

    def close(self) -> bool:
        """Close the producer, then the serializers that builders made."""
        result = super().close()
        _close_all(self._shm.serializers)
        return result

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()  # a subclass's, as there
