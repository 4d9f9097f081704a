"""The producers that are measured, each used as its own documents advise: one module a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tools.benchmark.contestants.aiokafka import AiokafkaClient
from tools.benchmark.contestants.base import Client, PacedClient
from tools.benchmark.contestants.confluent import ConfluentClient
from tools.benchmark.contestants.kafka_python import KafkaPythonClient
from tools.benchmark.contestants.ours import ColumnsClient, RecordsClient

OURS: Final = "shmaccum"
CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"
OUR_COLUMNS: Final = "shmaccum send_batch"

CLIENTS: Final[Mapping[str, type[Client]]] = {
    OURS: RecordsClient,
    OUR_COLUMNS: ColumnsClient,
    CONFLUENT: ConfluentClient,
    KAFKA_PYTHON: KafkaPythonClient,
    AIOKAFKA: AiokafkaClient,
}

PEERS: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)

__all__ = [
    "AIOKAFKA",
    "CLIENTS",
    "CONFLUENT",
    "KAFKA_PYTHON",
    "OURS",
    "OUR_COLUMNS",
    "PEERS",
    "Client",
    "PacedClient",
]
