"""shmaccum: one Kafka producer shared by all the Python processes of a host.

``from shmaccum import Producer`` is all that most programs need. What is exported here is imported when it is first
asked for, so that a process that only needs a part of the package starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmaccum._platform import check_core, check_gil
from shmaccum.abi import VERSION

if TYPE_CHECKING:
    from shmaccum._core import FutureRecordMetadata
    from shmaccum.accumulator.append.futures import ColumnsMetadata, FutureColumnsMetadata
    from shmaccum.cluster import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition
    from shmaccum.config import ProducerConfig
    from shmaccum.producer.async_producer import AsyncProducer
    from shmaccum.producer.interceptors import ProducerInterceptor, ProducerRecord
    from shmaccum.producer.producer import Producer

check_gil()
check_core()

__version__ = VERSION

__all__ = [
    "AsyncProducer",
    "ColumnsMetadata",
    "ConsumerGroupMetadata",
    "FutureColumnsMetadata",
    "FutureRecordMetadata",
    "OffsetAndMetadata",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
]

_HOMES = {
    "AsyncProducer": "shmaccum.producer.async_producer",
    "ColumnsMetadata": "shmaccum.accumulator.append.futures",
    "ConsumerGroupMetadata": "shmaccum.cluster",
    "FutureColumnsMetadata": "shmaccum.accumulator.append.futures",
    "FutureRecordMetadata": "shmaccum._core",
    "OffsetAndMetadata": "shmaccum.cluster",
    "Producer": "shmaccum.producer.producer",
    "ProducerConfig": "shmaccum.config",
    "ProducerInterceptor": "shmaccum.producer.interceptors",
    "ProducerRecord": "shmaccum.producer.interceptors",
    "RecordMetadata": "shmaccum.cluster",
    "TopicPartition": "shmaccum.cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return also what is not imported yet, for `help` and completion."""
    return sorted({*globals(), *__all__})
