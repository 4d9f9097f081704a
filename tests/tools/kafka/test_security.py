"""A secured cluster lets clients in only with the right credentials."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from brokers import PATIENCE_S, consume_values, produce
from confluent_kafka import KafkaError, KafkaException, Producer
from fixture_types import MakeCluster

from tools.kafka import Certificates, KafkaCluster, make_certificates
from tools.kafka.settings import USERS

VALUES = [b"one", b"two"]
Client = Callable[..., dict[str, Any]]
UNSECURED = {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True}


@pytest.fixture(scope="module")
def secured(kafka_cluster: MakeCluster, certificates: Certificates) -> KafkaCluster:
    cluster = kafka_cluster(sasl=True, certificates=certificates)
    cluster.start()
    return cluster


@pytest.fixture
def client(secured: KafkaCluster, certificates: Certificates) -> Callable[..., dict[str, Any]]:
    """Return ``client(user, name=value)``: a client's settings."""

    def make(user: str = "alice", **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": secured.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "ssl.ca.location": str(certificates.ca),
            "message.timeout.ms": 20_000,
        } | {name.replace("_", "."): value for name, value in more.items()}

    return make


def check_refused(settings: dict[str, Any], topic: str, why: str) -> None:
    """Produce, and wait until the client says why it cannot."""
    reasons: list[str] = []
    ended: list[KafkaError | None] = []
    told = {"error_cb": lambda error: reasons.append(error.str()), "log_level": 0}
    producer = Producer(settings | told | {"message.timeout.ms": int(PATIENCE_S * 1000)})
    producer.produce(topic, VALUES[0], on_delivery=lambda error, message: ended.append(error))
    while not any(why in reason for reason in reasons):
        producer.poll(1)
        assert not ended, reasons
    producer.purge()


def greet(cluster: KafkaCluster, context: ssl.SSLContext) -> bytes:
    """Shake hands with a broker, and return what it answers to an ApiVersions request."""
    with (
        socket.create_connection(("127.0.0.1", cluster.nodes[1].port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        return connection.recv(100)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password(secured: KafkaCluster, client: Client, topic: str, mechanism: str) -> None:
    secured.admin.create_topic(topic)
    produce(client(sasl_mechanism=mechanism), topic, VALUES)
    assert consume_values(client(sasl_mechanism=mechanism), topic) == {0: VALUES}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(secured: KafkaCluster, client: Client, topic: str, mechanism: str) -> None:
    secured.admin.create_topic(topic)
    check_refused(client(sasl_mechanism=mechanism, sasl_password="wrong"), topic, "uthentication failed")


def test_a_token(secured: KafkaCluster, client: Client, topic: str) -> None:
    secured.admin.create_topic(topic)
    produce(client() | UNSECURED | {"sasl.oauthbearer.config": "principal=alice"}, topic, VALUES)
    assert consume_values(client(), topic) == {0: VALUES}


def test_a_client_with_a_certificate(
    secured: KafkaCluster, client: Client, certificates: Certificates, topic: str
) -> None:
    secured.admin.create_topic(topic)
    identity = certificates.client
    shown = {"ssl_certificate_location": str(identity.certificate), "ssl_key_location": str(identity.key)}
    produce(client(**shown), topic, VALUES)
    assert consume_values(client(), topic) == {0: VALUES}


def test_a_client_whose_certificate_has_expired(secured: KafkaCluster, certificates: Certificates) -> None:
    trust = ssl.create_default_context(cafile=certificates.ca)
    assert greet(secured, trust)
    trust.load_cert_chain(certificates.client.pem)
    assert greet(secured, trust)
    trust.load_cert_chain(certificates.expired.pem)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
        greet(secured, trust)


def test_brokers_of_another_authority_are_not_trusted(client: Client, topic: str, tmp_path: Path) -> None:
    stranger = make_certificates(tmp_path / "tls")
    check_refused(client(ssl_ca_location=str(stranger.ca)), topic, "certificate verify failed")


def test_one_topic_of_two_is_forbidden(secured: KafkaCluster, client: Client, topic: str) -> None:
    for name in (topic, f"{topic}-forbidden"):
        secured.admin.create_topic(name)
    secured.admin.deny("alice", f"{topic}-forbidden")
    produce(client(), topic, VALUES)
    with pytest.raises(KafkaException) as error:
        produce(client(), f"{topic}-forbidden", VALUES)
    assert error.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured.admin.drop_rules(f"{topic}-forbidden")
    produce(client(), f"{topic}-forbidden", VALUES)
    assert consume_values(client(), f"{topic}-forbidden") == {0: VALUES}


def test_a_topic_for_one_user(secured: KafkaCluster, client: Client, topic: str) -> None:
    secured.admin.create_topic(topic)
    secured.admin.allow("alice", topic)
    produce(client("alice"), topic, VALUES)
    produce(client("admin"), topic, VALUES)
    with pytest.raises(KafkaException) as error:
        produce(client("bob"), topic, VALUES)
    assert error.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_brokers_with_an_expired_certificate(kafka_cluster: MakeCluster, certificates: Certificates) -> None:
    cluster = kafka_cluster(
        certificates=certificates, overrides={"listener.name.client.ssl.keystore.location": certificates.expired.pem}
    )
    cluster.start()
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        greet(cluster, ssl.create_default_context(cafile=certificates.ca))
