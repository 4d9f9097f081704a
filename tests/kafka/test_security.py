"""TLS and SASL against Apache Kafka: accepted and refused logins, their errors, and no secret in any of them."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import javastores
import pytest
from batches import make_batch, scattered
from brokers import MakeCluster, make_delegation_token
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from fixture_types import LogCapture
from wires import MakeWire, assert_stores, start_transport

from shmaccum import errors
from shmaccum.cluster import TopicPartition
from tools.kafka import Certificates, KafkaCluster
from tools.kafka.ports import free_port

PASSWORD = "alice-secret"


At = Callable[..., dict[str, Any]]
"""The fixture ``at``."""
LISTENERS = {"SECURE": "SASL_SSL", "TLS": "SSL", "EXPIRED": "SSL", "BRIEF": "SASL_PLAINTEXT"}
"""Further listeners of the broker, and what clients must speak there; ``CLIENT`` has no TLS, and takes any login."""


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """Return the ports of the further listeners."""
    return {name: free_port() for name in LISTENERS}


@pytest.fixture(scope="module")
def sasl(kafka_cluster: MakeCluster, certificates: Certificates, ports: dict[str, int]) -> Iterator[KafkaCluster]:
    """Return a broker that is reached in several ways; ``bootstrap_servers`` is the listener with SASL alone."""
    settings: dict[str, object] = {
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.brief.scram-sha-256.connections.max.reauth.ms": 5000,
    }
    for name, mechanism in (("secure", "SCRAM-SHA-512"), ("brief", "SCRAM-SHA-256")):  # each has only one
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = mechanism
        settings[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = module
    for name, own in (("secure", certificates.broker), ("tls", certificates.broker), ("expired", certificates.expired)):
        for store, file in (("keystore", own.pem), ("truststore", certificates.ca)):
            settings[f"listener.name.{name}.ssl.{store}.type"] = "PEM"
            settings[f"listener.name.{name}.ssl.{store}.location"] = file
    cluster = kafka_cluster(sasl=True, overrides=settings)
    node = cluster.nodes[1]
    protocols = {"CLIENT": "SASL_PLAINTEXT", "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | LISTENERS
    addresses = [
        f"{name}://127.0.0.1:{port}"
        for name, port in {"CLIENT": node.port, "INTERNAL": node.internal_port, **ports}.items()
    ]
    settings["advertised.listeners"] = ",".join(addresses)
    settings["listeners"] = ",".join([*addresses, f"CONTROLLER://127.0.0.1:{node.controller_port}"])
    settings["listener.security.protocol.map"] = ",".join(f"{name}:{kind}" for name, kind in protocols.items())
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def at(sasl: KafkaCluster, certificates: Certificates, ports: dict[str, int]) -> At:
    """Return ``at(listener, ...)``: settings of a client of a listener, which trusts its certificate's maker."""

    def settings(listener: str, host: str = "127.0.0.1", **more: object) -> dict[str, Any]:
        return {
            "servers": f"{host}:{ports[listener]}",
            "security_protocol": LISTENERS[listener],
            "ssl_truststore_location": certificates.ca,
        } | more

    return settings


def login(mechanism: str = "PLAIN", **more: object) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
    } | more


BY_TOKEN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_provider": "tokens.token",
}


# --- let in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_password(sasl: KafkaCluster, wire: MakeWire, topic: str, mechanism: str) -> None:
    assert_stores(wire, sasl, topic, **login(mechanism))


def test_by_token(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    assert_stores(wire, sasl, topic, **BY_TOKEN)


@pytest.fixture(scope="module")
def delegation_token(sasl: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the id and the HMAC of a token of Alice's."""
    return make_delegation_token(sasl, "alice", tmp_path_factory.mktemp("alice"))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_delegation_token(
    sasl: KafkaCluster, delegation_token: tuple[str, str], wire: MakeWire, topic: str, mechanism: str
) -> None:
    """As the user that the token stands for, by the line that Spark's own sink makes of one."""
    sasl.admin.allow("alice", topic)
    token_id, token_hmac = delegation_token
    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required tokenauth=true serviceName=kafka "
        f'username="{token_id}" password="{token_hmac}";'
    )
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_jaas_config": line}
    assert_stores(wire, sasl, topic, **given)


def test_by_password_through_tls(sasl: KafkaCluster, at: At, wire: MakeWire, topic: str) -> None:
    assert_stores(wire, sasl, topic, **login("SCRAM-SHA-512") | at("SECURE"))


@pytest.mark.parametrize("form", ["files", "texts", *javastores.KINDS])
def test_by_certificate(
    sasl: KafkaCluster,
    at: At,
    certificates: Certificates,
    stores: javastores.Stores,
    wire: MakeWire,
    topic: str,
    form: str,
) -> None:
    """Large batches, so that one goes out in many parts."""
    sasl.admin.create_topic(topic, settings={"max.message.bytes": 10_000_000})
    client = certificates.client
    given = at("TLS", ssl_keystore_location=client.pem)
    if form in javastores.KINDS:
        given |= {name.replace(".", "_"): value for name, value in javastores.settings_of(stores, form).items()}
    elif form == "texts":
        given = {
            "servers": given["servers"],
            "security_protocol": "SSL",
            "ssl_truststore_certificates": certificates.ca.read_text(),
            "ssl_keystore_certificate_chain": client.certificate.read_text(),
            "ssl_keystore_key": client.key.read_text(),
        }
    here = wire(**given)
    for size in (10, 5_000_000, 10):
        assert here.store(make_batch([bytes(size)], to=TopicPartition(topic, 0)))[0].error is None
    large = make_batch([os.urandom(1_000_000)], to=TopicPartition(topic, 0))
    for slot_size in (1024, 16_384):  # the broker looks at the checksum
        assert here.store(scattered(large, slot_size))[0].error is None


def test_logs_in_again_before_the_session_ends(
    sasl: KafkaCluster, ports: dict[str, int], wire: MakeWire, topic: str
) -> None:
    """KIP-368: over the same connection, between two requests, whatever else there is to be watched for."""
    long = {
        "request_timeout_ms": 100_000,
        "delivery_timeout_ms": 200_000,
        "socket_connection_setup_timeout_ms": 100_000,
        "socket_connection_setup_timeout_max_ms": 100_000,
    }
    sasl.admin.create_topic(topic)
    to = TopicPartition(topic, 0)
    here = wire(f"127.0.0.1:{ports['BRIEF']}", **login("SCRAM-SHA-256"), **long)
    node = here.connect(to)
    connection = here.transport._brokers.connection(node)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert here.store(make_batch([b"x"], to=to))[0].error is None
        here.poll(20)
    here.connect(to)  # on a slow machine, the login is still under way
    assert here.transport._brokers.connection(node) is connection


# --- not let in -------------------------------------------------------------------------------------------


def failure_of(wire: MakeWire, servers: str, **settings: object) -> type[errors.KafkaError]:
    here = wire(servers, **settings)
    failure: type[errors.KafkaError] = here.ask_until(here.transport.failure)
    assert here.transport.cluster().topic_errors == {"t": failure}
    return failure


@pytest.mark.parametrize("change", [{"sasl_tokenauth": False}, {"sasl_password": "not-it"}])
def test_a_delegation_token_that_is_none(
    sasl: KafkaCluster, delegation_token: tuple[str, str], wire: MakeWire, change: dict[str, object]
) -> None:
    """A token is none of the users, and needs its HMAC."""
    token_id, token_hmac = delegation_token
    token = {"sasl_username": token_id, "sasl_password": token_hmac, "sasl_tokenauth": True} | change
    assert failure_of(wire, sasl.bootstrap_servers, **login("SCRAM-SHA-256", **token)) is errors.SaslAuthenticationError


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(sasl: KafkaCluster, wire: MakeWire, mechanism: str, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)
    failure = failure_of(wire, sasl.bootstrap_servers, **login(mechanism, sasl_password="not-it"))
    assert failure is errors.SaslAuthenticationError
    assert "the broker refused the login" in caplog.text
    assert "not-it" not in caplog.text


def test_a_password_that_becomes_right(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    """The user is created after the first, refused attempt: a later one succeeds."""
    sasl.admin.create_topic(topic)
    sasl.admin.allow("carol", topic)
    here = wire(sasl.bootstrap_servers, **login("SCRAM-SHA-256", sasl_username="carol", sasl_password="new"))
    here.transport.request_update([topic])
    assert here.until(here.transport.failure) is errors.SaslAuthenticationError
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    client = AdminClient({"bootstrap.servers": sasl.internal_servers, "log_level": 0})
    for change in client.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, b"new")]).values():
        change.result(30)
    assert here.store(make_batch([b"x"], to=TopicPartition(topic, 0)))[0].error is None
    assert here.transport.failure() is None


def test_no_token(sasl: KafkaCluster, wire: MakeWire, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)
    given = BY_TOKEN | {"sasl_oauthbearer_token_provider": "tokens.no_token"}
    assert failure_of(wire, sasl.bootstrap_servers, **given) is errors.SaslAuthenticationError
    assert "raised RuntimeError" in caplog.text
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize("ours", ["none", "expired"])
def test_a_certificate_that_the_broker_does_not_accept(
    at: At, certificates: Certificates, wire: MakeWire, ours: str, caplog: LogCapture
) -> None:
    given = {"ssl_keystore_location": certificates.expired.pem} if ours == "expired" else {}
    assert failure_of(wire, **at("TLS", **given)) is errors.SslAuthenticationError
    assert "the broker refused our certificate, or misses one; check ssl.keystore.location" in caplog.text


def test_an_expired_certificate_of_the_brokers(at: At, wire: MakeWire, caplog: LogCapture) -> None:
    assert failure_of(wire, **at("EXPIRED")) is errors.SslAuthenticationError
    assert "certificate has expired" in caplog.text


def test_a_name_that_is_not_the_certificates(at: At, wire: MakeWire, caplog: LogCapture) -> None:
    given = login("SCRAM-SHA-512") | at("SECURE", host="127.1")
    assert failure_of(wire, **given) is errors.SslAuthenticationError
    assert "certificate is not valid for '127.1'" in caplog.text
    unchecked = wire(**given, ssl_endpoint_identification_algorithm="")
    unchecked.ask_until(lambda: unchecked.transport.cluster().nodes)


def test_plain_text_to_a_broker_that_speaks_tls(at: At, wire: MakeWire, caplog: LogCapture) -> None:
    here = wire(at("TLS")["servers"])
    here.ask_until(lambda: "the next one" in caplog.text)
    assert "set security.protocol to SSL" in caplog.text
    assert here.transport.failure() is None


def test_tls_to_a_broker_that_does_not_speak_it(
    sasl: KafkaCluster, certificates: Certificates, wire: MakeWire, caplog: LogCapture
) -> None:
    here = wire(sasl.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=certificates.ca)
    here.ask_until(lambda: "connection to broker" in caplog.text)
    assert "in the TLS handshake; is this port one of security.protocol SSL or SASL_SSL?" in caplog.text


def test_a_topic_that_may_not_even_be_described(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    sasl.admin.create_topic(topic)
    sasl.admin.deny("alice", topic, AclOperation.ALL)
    here = wire(sasl.bootstrap_servers, **login())
    here.transport.request_update([topic])
    assert here.until(lambda: here.transport.cluster().topic_errors) == {topic: errors.TopicAuthorizationError}
    assert here.transport.failure() is None


# --- settings that cannot work --------------------------------------------------------------------------


def test_files_that_cannot_be_used(certificates: Certificates, tmp_path: Any) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate at all")
    for setting in ("ssl.truststore.location", "ssl.keystore.location"):
        for path in (nonsense, tmp_path / "missing.pem"):
            with pytest.raises(errors.ConfigError, match=f"{setting} = '{path}'"):
                start_transport(security_protocol="SSL", **{setting: path})


def test_texts_that_cannot_be_used(certificates: Certificates) -> None:
    key = certificates.client.key.read_text()
    for text in ("very secret", "tr\u00e8s secret"):
        with pytest.raises(errors.ConfigError, match=r"ssl.truststore.certificates = \[hidden\]"):
            start_transport(security_protocol="SSL", ssl_truststore_certificates=text)
    with pytest.raises(errors.ConfigError, match=r"ssl.keystore.key = \[hidden\]") as caught:
        start_transport(security_protocol="SSL", ssl_keystore_certificate_chain="nonsense", ssl_keystore_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("between", [" ", "\n    ", "\r\n", " \n"])
def test_texts_of_pem_need_no_lines(certificates: Certificates, between: str) -> None:
    """As in Java: a continued line of properties, YAML and Spark's options join or indent the lines."""

    def joined(*files: Path) -> str:
        return "".join(file.read_text() for file in files).strip().replace("\n", between)

    start_transport(
        security_protocol="SSL",
        ssl_truststore_certificates=joined(certificates.ca, certificates.broker.certificate),
        ssl_keystore_certificate_chain=joined(certificates.client.certificate, certificates.ca),
        ssl_keystore_key=joined(certificates.client.key),
    )


def test_comments_of_pem_are_any_text(certificates: Certificates) -> None:
    def commented(*files: Path) -> str:
        return "".join(f"# F\u0151tan\u00fas\u00edtv\u00e1ny\n{file.read_text()}" for file in files)

    start_transport(
        security_protocol="SSL",
        ssl_truststore_certificates=commented(certificates.ca, certificates.broker.certificate),
        ssl_keystore_certificate_chain=commented(certificates.client.certificate),
        ssl_keystore_key=commented(certificates.client.key),
    )


def test_an_encrypted_key_as_text_needs_no_lines(certificates: Certificates, tmp_path: Path) -> None:
    for command in (["pkcs8", "-topk8"], ["ec", "-aes128"]):  # the second has headers, whose lines stay
        key = tmp_path / "encrypted.pem"
        secret = ["-passout", "pass:open"]
        subprocess.run(
            ["openssl", *command, "-in", certificates.client.key, *secret, "-out", key], check=True, capture_output=True
        )
        text = key.read_text()
        start_transport(
            security_protocol="SSL",
            ssl_keystore_certificate_chain=certificates.client.certificate.read_text().replace("\n", " "),
            ssl_keystore_key=text if "Proc-Type" in text else text.replace("\n", " "),
            ssl_key_password="open",
        )


def test_a_key_without_its_password(certificates: Certificates, tmp_path: Any) -> None:
    """OpenSSL does not ask the terminal for one."""
    encrypted = tmp_path / "encrypted.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", certificates.client.key, "-passout", "pass:open", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    encrypted.write_text(encrypted.read_text() + certificates.client.certificate.read_text())
    given = {"security_protocol": "SSL", "ssl_keystore_location": encrypted}
    for password in ({}, {"ssl_key_password": "wrong"}):
        with pytest.raises(errors.ConfigError, match="wrong password of the key"):
            start_transport(**given, **password)
    start_transport(**given, ssl_key_password="open")


def test_a_token_provider_that_is_not_there() -> None:
    given = BY_TOKEN | {"sasl_oauthbearer_token_provider": "no_such_module.token"}
    with pytest.raises(errors.ConfigError, match="no_such_module"):
        start_transport(**given)
