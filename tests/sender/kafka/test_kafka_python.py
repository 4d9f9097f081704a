"""What is taken from kafka-python's internals, one by one: what fails here says what a new version changed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from shmaccum.sender.kafka import kafka_python
from shmaccum.sender.kafka.kafka_python import decode, encode

REQUESTS = {
    "ApiVersionsRequest": 18,
    "InitProducerIdRequest": 22,
    "MetadataRequest": 3,
    "SaslAuthenticateRequest": 36,
    "SaslHandshakeRequest": 17,
}
COMMITTER = "import sys; import shmaccum.transactions.batch_committer\n"


def test_only_versions_that_were_tried_are_installed() -> None:
    """The internals of a library change with any minor version."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (needed,) = (each for each in map(Requirement, project["dependencies"]) if each.name == "kafka-python")
    assert needed.specifier.contains(version("kafka-python"))
    assert not needed.specifier.contains("3.1.0")
    assert not needed.specifier.contains("4.0")


@pytest.mark.parametrize(("name", "key"), REQUESTS.items())
def test_a_request_and_its_response(name: str, key: int) -> None:
    """In every version; what a response lacks is an error, and not read from nowhere."""
    kind = getattr(kafka_python, name)
    assert key == kind.API_KEY
    for number in range(kind().min_version, kind().max_version + 1):
        request = kind()
        assert request.name == name
        frame = encode(request, number, 7, "client")
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert int.from_bytes(frame[4:6]) == key
        assert int.from_bytes(frame[6:8]) == number
        response = request.header.get_response_class()
        sample = response()
        sample.API_VERSION = number
        sample.with_header(correlation_id=7)
        data = sample.encode(header=True, framed=True)[4:]
        found = decode(response, data)
        assert hasattr(found, "error_code") or name == "MetadataRequest"
        with pytest.raises(kafka_python.NetworkError):
            decode(response, data[:4])


# --- imports without its clients ---


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_committing_a_batch_imports_no_clients_and_no_numpy() -> None:
    assert (
        run(f"{COMMITTER}print([name for name in ('kafka.admin', 'kafka.consumer', 'numpy') if name in sys.modules])")
        == "[]"
    )


@pytest.mark.parametrize(
    "program",
    [
        "import kafka; print(kafka.KafkaProducer.__name__)",
        "from kafka import KafkaProducer; print(KafkaProducer.__name__)",
        "from kafka.producer import KafkaProducer; print(KafkaProducer.__name__)",
        "import kafka.producer.kafka; print(kafka.producer.kafka.KafkaProducer.__name__)",
        "import kafka.protocol.admin; kafka.protocol.admin.AlterConfigsRequest; print(kafka.KafkaProducer.__name__)",
        "from kafka.protocol.consumer import *; from kafka import *; FetchRequest; print(KafkaProducer.__name__)",
        "import importlib, kafka; importlib.reload(kafka); print(kafka.KafkaProducer.__name__)",
    ],
)
def test_its_clients_can_be_imported_afterwards(program: str) -> None:
    assert run(COMMITTER + program) == "KafkaProducer"


def test_a_name_that_it_does_not_have_is_missing() -> None:
    assert run(f"{COMMITTER}import kafka; print(hasattr(kafka, 'nothing'), hasattr(kafka, 'nothing'))") == "False False"


def test_threads_wait_until_it_is_imported() -> None:
    program = """
import kafka
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as threads:
    print({each.__name__ for each in threads.map(lambda _: kafka.KafkaProducer, range(8))})
"""
    assert run(COMMITTER + program) == "{'KafkaProducer'}"
