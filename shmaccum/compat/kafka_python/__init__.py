"""kafka-python's ``KafkaProducer``, over the shared slab.

``from shmaccum.compat.kafka_python import KafkaProducer`` is all that changes in a program. Names that belong to no
producer, such as ``KafkaConsumer``, are kafka-python's own. Errors are of its classes. docs/compat.md lists what
differs.
"""

from __future__ import annotations

from typing import Any

from shmaccum.compat.kafka_python.producer import KafkaProducer

__all__ = ["KafkaProducer"]


def __getattr__(name: str) -> Any:
    """Return a name that belongs to no producer from kafka-python."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import kafka

    return getattr(kafka, name)
