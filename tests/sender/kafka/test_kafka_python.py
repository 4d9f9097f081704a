"""What is taken from kafka-python's internals, one by one: what fails here says what a new version changed."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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


@pytest.fixture
def gssapi() -> Iterator[SimpleNamespace]:
    """Replace the package gssapi, which talks with a key distribution center."""
    module: Any = ModuleType("gssapi")
    context = SimpleNamespace(complete=False, steps=[])

    def step(data: bytes | None) -> bytes:
        context.steps.append(data)
        context.complete = data is not None
        return b"token %d" % len(context.steps)

    context.step = step
    context.unwrap = lambda data: SimpleNamespace(message=b"\x01\x00\x10\x00")
    context.wrap = lambda data, encrypt: SimpleNamespace(message=b"wrapped " + data)
    module.NameType = SimpleNamespace(hostbased_service="service")
    module.MechType = SimpleNamespace(kerberos="kerberos")

    class Name:
        def __init__(self, text: str, name_type: str) -> None:
            context.name = text

        def canonicalize(self, mechanism: str) -> Name:
            return self

    module.Name = Name
    module.SecurityContext = lambda name, usage: context
    before = sys.modules.get("gssapi")
    sys.modules["gssapi"] = module
    yield context
    if before is None:
        del sys.modules["gssapi"]
    else:
        sys.modules["gssapi"] = before


def test_a_login_by_kerberos(gssapi: SimpleNamespace) -> None:
    """RFC 4752: tokens until the context is complete, then which protection there is."""
    login = kafka_python.gssapi_mechanism("broker.example", "kafka")
    assert gssapi.name == "kafka@broker.example"
    assert login.auth_bytes() == b"token 1"
    login.receive(b"of the broker")
    assert login.auth_bytes() == b"token 2"
    login.receive(b"protection")
    assert not login.is_done()
    assert login.auth_bytes() == b"wrapped \x01\x00\x10\x00kafka@broker.example"
    assert login.is_done()
    login.receive(b"")
    assert login.is_authenticated()
