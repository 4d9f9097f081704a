"""What is taken from kafka-python's internals, one by one: what fails here says what a new version changed."""

from __future__ import annotations

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
