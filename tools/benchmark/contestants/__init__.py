"""The measured producers, each used as its documentation advises: one module per library.

They are imported only where they are used: the tool forks the contestants, so it must have no producer, no thread, and
no form of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from tools.benchmark.contestants.base import Client, PacedClient
from tools.benchmark.package_form import Form

OURS: Final = "shmaccum"
OUR_COLUMNS: Final = "shmaccum send_batch"
OUR_ASYNC: Final = "shmaccum AsyncProducer"
PLAIN: Final = f"{OURS}, plain Python"
PLAIN_COLUMNS: Final = f"{OUR_COLUMNS}, plain Python"
CONFLUENT: Final = "confluent-kafka"
CONFLUENT_DEFAULTS: Final = f"{CONFLUENT}, its own defaults"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"

PEERS: Final = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)

_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    OURS: ("ours", "RecordsClient"),
    PLAIN: ("ours", "RecordsClient"),
    OUR_COLUMNS: ("ours", "ColumnsClient"),
    OUR_ASYNC: ("ours", "AsyncClient"),
    PLAIN_COLUMNS: ("ours", "ColumnsClient"),
    CONFLUENT: ("confluent", "ConfluentClient"),
    CONFLUENT_DEFAULTS: ("confluent", "DefaultsClient"),
    KAFKA_PYTHON: ("kafka_python", "KafkaPythonClient"),
    AIOKAFKA: ("aiokafka", "AiokafkaClient"),
}

__all__ = [
    "AIOKAFKA",
    "CONFLUENT",
    "CONFLUENT_DEFAULTS",
    "KAFKA_PYTHON",
    "OURS",
    "OUR_ASYNC",
    "OUR_COLUMNS",
    "PEERS",
    "PLAIN",
    "PLAIN_COLUMNS",
    "Client",
    "PacedClient",
    "client_class",
]


def client_class(contestant: str, form: Form | None) -> type[Client]:
    """Return the class that a contestant sends with in this process.

    Args:
        contestant: by its name.
        form: of the package, None for a peer.

    Raises:
        BenchmarkError: this process cannot load this form.
    """
    if form is not None:
        form.enter()
    module, name = _HOMES[contestant]
    found: type[Client] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
