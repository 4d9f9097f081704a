"""confluent-kafka's ``Producer`` and ``SerializingProducer``, over the shared slab.

``from shmaccum.compat.confluent import Producer`` is all that changes in a program. Names that belong to no producer,
such as ``Consumer``, are confluent-kafka's own, where that is installed. docs/compat.md lists what differs.
"""

from __future__ import annotations

from typing import Any, Final

from shmaccum.compat.confluent.errors import KafkaError, KafkaException
from shmaccum.compat.confluent.producer import Producer
from shmaccum.compat.confluent.serializing import SerializingProducer

__all__ = ["KafkaError", "KafkaException", "Producer", "SerializingProducer"]

NO_AIO: Final = (
    "confluent-kafka's asyncio client is not provided here: use shmaccum.AsyncProducer (docs/asyncio.md), with Kafka's "
    "names of settings"
)
"""What a program finds that asks for ``aio``."""


def __getattr__(name: str) -> Any:
    """Return a name that belongs to no producer from confluent-kafka."""
    if name in ("aio", "AIOProducer"):
        raise AttributeError(NO_AIO)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import confluent_kafka
    except ImportError:
        # ``from ... import Consumer`` shows no AttributeError's text. Names of other kinds than a class can be a tool's
        # question, which expects one.
        raise (ImportError if name[:1].isupper() else AttributeError)(
            f"{__name__} has no {name}: it is confluent-kafka's, which is not installed: pip install confluent-kafka"
        ) from None
    return getattr(confluent_kafka, name)
