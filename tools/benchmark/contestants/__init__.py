"""The measured producers, each used as its documentation advises: one module per library.

They are imported only where they are used: the tool forks the contestants, so it must have no producer and no thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from tools.benchmark.contestants.base import Client, PacedClient

OURS: Final = "shmaccum"
OUR_COLUMNS: Final = "shmaccum send_batch"
OUR_ASYNC: Final = "shmaccum AsyncProducer"
CONFLUENT: Final = "confluent-kafka"
CONFLUENT_DEFAULTS: Final = f"{CONFLUENT}, its own defaults"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"
JVM: Final = "Kafka's producer in a JVM"
"""A process of its own kind: `tools.benchmark.contestants.jvm`."""

PEERS: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)

_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    OURS: ("ours", "RecordsClient"),
    OUR_COLUMNS: ("ours", "ColumnsClient"),
    OUR_ASYNC: ("ours", "AsyncClient"),
    CONFLUENT: ("confluent", "ConfluentClient"),
    CONFLUENT_DEFAULTS: ("confluent", "DefaultsClient"),
    KAFKA_PYTHON: ("kafka_python", "KafkaPythonClient"),
    AIOKAFKA: ("aiokafka", "AiokafkaClient"),
}

__all__ = [
    "AIOKAFKA",
    "CONFLUENT",
    "CONFLUENT_DEFAULTS",
    "JVM",
    "KAFKA_PYTHON",
    "OURS",
    "OUR_ASYNC",
    "OUR_COLUMNS",
    "PEERS",
    "Client",
    "PacedClient",
    "client_class",
]


def client_class(contestant: str) -> type[Client]:
    """Return the class that a contestant, given by its name, sends with."""
    module, name = _HOMES[contestant]
    found: type[Client] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
