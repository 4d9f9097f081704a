"""Wrong settings: the error names the setting; no hang, no silent loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeCluster
from producers import settings_of, wait_until_gone, wait_until_refused

from shmaccum import Producer
from shmaccum.errors import (
    ConfigError,
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    NetworkError,
    SaslAuthenticationError,
    SenderError,
    SslAuthenticationError,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)
from tools.kafka import Certificates, KafkaCluster
from tools.kafka.settings import USERS

MAX_BLOCK_MS = 500
"""For how long a record waits in vain; why, is known before."""


Refusal = Callable[..., KafkaError | SenderError]
InVain = Callable[..., KafkaTimeoutError]


@pytest.fixture(scope="module")
def secured(kafka_cluster: MakeCluster, certificates: Certificates) -> KafkaCluster:
    """Return a cluster that speaks SASL_SSL, and of the mechanisms only PLAIN."""
    overrides = {"listener.name.client.sasl.enabled.mechanisms": "PLAIN"}
    cluster = kafka_cluster(sasl=True, certificates=certificates, overrides=overrides)
    cluster.start()
    cluster.admin.create_topic("t")
    return cluster


@pytest.fixture
def login(secured: KafkaCluster, certificates: Certificates) -> dict[str, object]:
    """Return settings that the secured cluster lets in."""
    return {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
        "ssl.truststore.location": str(certificates.ca),
    }


@pytest.fixture
def refusal(slab_name: str) -> Iterator[Refusal]:
    """Return ``refusal(settings)``: the error that a producer with these settings gets at once."""

    def send(given: dict[str, Any]) -> KafkaError | SenderError:
        settings = settings_of(slab_name, "") | {"transport": "kafka", "log.dir": ""}
        with pytest.raises((KafkaError, SenderError)) as caught, Producer(settings | given) as producer:
            producer.send("t", b"value")
        assert isinstance(caught.value, KafkaError | SenderError)
        return caught.value

    yield send
    wait_until_gone(slab_name)


@pytest.fixture
def in_vain(slab_name: str) -> Iterator[InVain]:
    """Return ``in_vain(settings, topic="t")``: the error that a record gets that waits for its topic in vain."""

    def send(given: dict[str, Any], topic: str = "t") -> KafkaTimeoutError:
        settings = settings_of(slab_name, "", max_block_ms=MAX_BLOCK_MS) | {"transport": "kafka", "log.dir": ""}
        with Producer(settings | given) as producer:
            wait_until_refused(producer, topic)
            with pytest.raises(KafkaTimeoutError) as caught:
                producer.send(topic, b"value")
        return caught.value

    yield send
    wait_until_gone(slab_name)


def check_timeout(error: KafkaTimeoutError, cause: type[KafkaError], *parts: str) -> None:
    """See that the error says why a record waited for its topic in vain."""
    assert isinstance(error.__cause__, cause)
    assert f"not present in metadata after {MAX_BLOCK_MS} ms: {cause.__name__}: " in str(error)
    for part in parts:
        assert part in str(error)


def test_settings_that_work(login: dict[str, object], slab_name: str) -> None:
    """Else what is refused below might be for another reason."""
    with Producer(settings_of(slab_name, "") | {"transport": "kafka", "log.dir": ""} | login) as producer:
        assert producer.send("t", b"value").get(20).offset == 0
    wait_until_gone(slab_name)


# --- before anything runs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bootstrap.servers is missing: transport kafka needs brokers to begin with"),
        ({"bootstrap.servers": "broker1"}, "bootstrap.servers = 'broker1': expected host:port"),
        ({"bootstrap.server": "broker1:9092"}, "bootstrap.server: no such setting; did you mean boot"),
        ({"bootstrap.servers": "broker1:9092", "linger.sm": 5}, "linger.sm: no such setting; did you mean li"),
        ({"bootstrap.servers": "broker1:9092", "acks": "some"}, "acks = 'some': must be one of all, -1, 0, 1"),
    ],
)
def test_impossible_setting(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Producer(settings)
    assert str(caught.value).startswith(message)


def test_password_without_a_mechanism(login: dict[str, object]) -> None:
    """As in Kafka the default is GSSAPI."""
    del login["sasl.mechanism"]
    with pytest.raises(ConfigError, match=r"^sasl\.mechanism = 'GSSAPI', which is the default: .* set sasl\.mechanism"):
        Producer(login)


def test_missing_certificate(login: dict[str, object], refusal: Refusal) -> None:
    error = refusal(login | {"ssl.truststore.location": "/nowhere/ca.pem"})
    assert isinstance(error, SenderError)
    assert "ssl.truststore.location = '/nowhere/ca.pem': cannot be read" in str(error)


# --- brokers that cannot be spoken with ----------------------------------------------------------------


def test_closed_port(in_vain: InVain) -> None:
    check_timeout(
        in_vain({"bootstrap.servers": "127.0.0.1:1"}),
        NetworkError,
        "no broker reachable",
        "(bootstrap.servers = '127.0.0.1:1', security.protocol = 'PLAINTEXT'); last error: NetworkError: connection to "
        "broker 127.0.0.1:1: Connection refused (since ",
    )


def test_error_names_the_log_of_the_sender(in_vain: InVain, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    error = in_vain({"bootstrap.servers": "127.0.0.1:1", "sender.log.file": log})
    check_timeout(error, NetworkError, f"; log of the sender: {log}")
    assert "broker 127.0.0.1:1: Connection refused" in log.read_text()


def test_plaintext_to_a_tls_port(secured: KafkaCluster, in_vain: InVain) -> None:
    error = in_vain({"bootstrap.servers": secured.bootstrap_servers})
    check_timeout(error, NetworkError, "none supports a protocol version we support", "security.protocol = 'PLAINTEXT'")


def test_tls_to_a_plaintext_port(kafka: KafkaCluster, in_vain: InVain) -> None:
    error = in_vain({"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL"})
    check_timeout(error, NetworkError, "none supports a protocol version we support", "security.protocol = 'SSL'")


# --- brokers that do not let us in: that is known at once -----------------------------------------------


def test_sasl_to_a_port_without_sasl(kafka: KafkaCluster, refusal: Refusal) -> None:
    error = refusal(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
    )
    assert isinstance(error, IllegalSaslStateError)
    assert "does it support SASL? (security.protocol = 'SASL_PLAINTEXT')" in str(error)


def test_untrusted_certificate(login: dict[str, object], refusal: Refusal) -> None:
    del login["ssl.truststore.location"]
    error = refusal(login)
    assert isinstance(error, SslAuthenticationError)
    assert "ssl.truststore.location = ''" in str(error)


def test_unsupported_mechanism(login: dict[str, object], refusal: Refusal) -> None:
    error = refusal(login | {"sasl.mechanism": "SCRAM-SHA-512"})
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert "The broker does not offer sasl.mechanism (sasl.mechanism = 'SCRAM-SHA-512')" in str(error)


def test_wrong_password(login: dict[str, object], refusal: Refusal) -> None:
    error = refusal(login | {"sasl.password": "wrong-secret"})
    assert isinstance(error, SaslAuthenticationError)
    assert "The SASL login failed: one side did not accept the other (sasl.mechanism = 'PLAIN'" in str(error)
    assert "sasl.username = 'alice'" in str(error)
    assert "the broker refused the login: Authentication failed: Invalid username or password" in str(error)
    assert "wrong-secret" not in str(error)


# --- topics --------------------------------------------------------------------------------------------


def test_unknown_topic(kafka: KafkaCluster, in_vain: InVain, topic: str) -> None:
    check_timeout(
        in_vain({"bootstrap.servers": kafka.bootstrap_servers}, topic),
        UnknownTopicOrPartitionError,
        f"Topic {topic} not present",
        "The topic or partition does not exist",
    )


def test_topic_created_meanwhile(kafka: KafkaCluster, topic: str, slab_name: str) -> None:
    """An answer that there is no such topic is not the last word on it."""
    settings = settings_of(slab_name, "") | {"transport": "kafka", "log.dir": ""}
    settings |= {"bootstrap.servers": kafka.bootstrap_servers}
    with Producer(settings | {"max.block.ms": MAX_BLOCK_MS}) as impatient, Producer(settings) as patient:
        wait_until_refused(impatient, topic)
        with pytest.raises(KafkaTimeoutError, match="UnknownTopicOrPartitionError"):
            impatient.send(topic, b"value")
        kafka.admin.create_topic(topic, partitions=2)
        assert patient.partitions_for(topic) == {0, 1}
    wait_until_gone(slab_name)
