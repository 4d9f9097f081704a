"""Wrong settings: the error names the setting; no hang, no silent loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeCluster, Produce, Settings
from producers import wait_until_refused

from shmaccum import Producer, errors
from shmaccum.producer import destinations
from tools.kafka import Certificates, KafkaCluster
from tools.kafka.settings import USERS

MAX_BLOCK_MS = 500
"""For how long a record waits in vain; why, is known before."""

InVain = Callable[..., None]


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
def in_vain(make_producer: Produce, kafka_settings: Settings) -> InVain:
    """Return ``in_vain(settings, cause, *parts, topic="t")``: a record waits for its topic in vain, for the cause."""

    def send(given: dict[str, Any], cause: type[errors.KafkaError], *parts: str, topic: str = "t") -> None:
        producer = make_producer(kafka_settings(max_block_ms=MAX_BLOCK_MS) | given)
        wait_until_refused(producer, topic)
        with pytest.raises(errors.KafkaTimeoutError) as caught:
            producer.send(topic, b"value")
        assert isinstance(caught.value.__cause__, cause)
        parts = f"not present in metadata after {MAX_BLOCK_MS} ms: {cause.__name__}: ", *parts
        assert [part for part in parts if part not in str(caught.value)] == []

    return send


# --- brokers that cannot be spoken with ----------------------------------------------------------------


def test_closed_port(in_vain: InVain, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    in_vain(
        {"bootstrap.servers": "127.0.0.1:1", "sender.log.file": log},
        errors.NetworkError,
        "no broker reachable",
        "(bootstrap.servers = '127.0.0.1:1', security.protocol = 'PLAINTEXT'); last error: NetworkError: connection to "
        "broker 127.0.0.1:1: Connection refused (since ",
        f"; log of the sender: {log}",
    )
    assert "broker 127.0.0.1:1: Connection refused" in log.read_text()


def test_a_call_that_waits_in_vain_says_why(
    in_vain: InVain, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, before it fails: a minute is long."""
    monkeypatch.setattr(destinations, "_WARN_AFTER_S", 0.1)
    in_vain({"bootstrap.servers": "127.0.0.1:1"}, errors.NetworkError)
    (said,) = [record.getMessage() for record in caplog.records if record.name == destinations.__name__]
    assert said.startswith("no metadata of topic 't' after ")
    assert f"waiting for it up to max.block.ms = {MAX_BLOCK_MS}: NetworkError: no broker reachable" in said
    assert "connection to broker 127.0.0.1:1: Connection refused" in said


UNSUPPORTED = "none supports a protocol version we support"


def test_plaintext_to_a_tls_port(secured: KafkaCluster, in_vain: InVain) -> None:
    given = {"bootstrap.servers": secured.bootstrap_servers}
    in_vain(given, errors.NetworkError, UNSUPPORTED, "security.protocol = 'PLAINTEXT'")


def test_tls_to_a_plaintext_port(kafka: KafkaCluster, in_vain: InVain) -> None:
    given = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL"}
    in_vain(given, errors.NetworkError, UNSUPPORTED, "security.protocol = 'SSL'")


# --- brokers that do not let us in: that is known at once -----------------------------------------------

REFUSED: dict[str, tuple[dict[str, object], type[errors.KafkaError | errors.SenderError], tuple[str, ...]]] = {
    "missing certificate": (
        {"ssl.truststore.location": "/nowhere/ca.pem"},
        errors.SenderError,
        ("ssl.truststore.location = '/nowhere/ca.pem': cannot be read",),
    ),
    "untrusted certificate": (
        {"ssl.truststore.location": ""},
        errors.SslAuthenticationError,
        ("ssl.truststore.location = ''",),
    ),
    "unsupported mechanism": (
        {"sasl.mechanism": "SCRAM-SHA-512"},
        errors.UnsupportedSaslMechanismError,
        ("The broker does not offer sasl.mechanism (sasl.mechanism = 'SCRAM-SHA-512')",),
    ),
    "wrong password": (
        {"sasl.password": "wrong-secret"},
        errors.SaslAuthenticationError,
        (
            "no metadata of topic 't': ",
            "The SASL login failed: one side did not accept the other (sasl.mechanism = 'PLAIN'",
            "sasl.username = 'alice'",
            "the broker refused the login: Authentication failed: Invalid username or password",
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_broker_does_not_let_us_in(
    case: str, login: dict[str, object], make_producer: Produce, kafka_settings: Settings
) -> None:
    changes, error, parts = REFUSED[case]
    with pytest.raises(error) as caught:
        make_producer(kafka_settings() | login | changes).send("t", b"value")
    assert [part for part in parts if part not in str(caught.value)] == []
    assert "wrong-secret" not in str(caught.value)


def test_settings_that_work(login: dict[str, object], make_producer: Produce, kafka_settings: Settings) -> None:
    """Else what is refused above might be for another reason."""
    assert make_producer(kafka_settings() | login).send("t", b"value").get(20).offset == 0


def test_sasl_to_a_port_without_sasl(
    kafka: KafkaCluster, login: dict[str, object], make_producer: Produce, kafka_settings: Settings
) -> None:
    given = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(
        errors.IllegalSaslStateError, match=r"does it support SASL\? \(security.protocol = 'SASL_PLAINTEXT'\)"
    ):
        make_producer(kafka_settings() | login | given).send("t", b"value")


def test_password_without_a_mechanism(login: dict[str, object]) -> None:
    """As in Kafka the default is GSSAPI."""
    del login["sasl.mechanism"]
    with pytest.raises(
        errors.ConfigError, match=r"^sasl\.mechanism = 'GSSAPI', which is the default: .* set sasl\.mechanism"
    ):
        Producer(login)


# --- topics --------------------------------------------------------------------------------------------


def test_unknown_topic_that_is_created_later(
    kafka: KafkaCluster, in_vain: InVain, topic: str, make_producer: Produce, kafka_settings: Settings
) -> None:
    """An answer that there is no such topic is not the last word on it."""
    settings = kafka_settings(bootstrap_servers=kafka.bootstrap_servers)
    patient = make_producer(settings)
    said = f"Topic {topic} not present", "The topic or partition does not exist"
    in_vain({"bootstrap.servers": kafka.bootstrap_servers}, errors.UnknownTopicOrPartitionError, *said, topic=topic)
    kafka.admin.create_topic(topic, partitions=2)
    assert patient.partitions_for(topic) == {0, 1}
