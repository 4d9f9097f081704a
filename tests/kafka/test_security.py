"""TLS and SASL against Apache Kafka: accepted and refused logins, their errors, and no secret in any of them."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Iterator
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
from wires import MakeWire, assert_stores, start_transport

from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    ConfigError,
    KafkaError,
    SaslAuthenticationError,
    SslAuthenticationError,
    TopicAuthorizationError,
    UnsupportedSaslMechanismError,
)
from tools.kafka import Certificates, KafkaCluster

PASSWORD = "alice-secret"


@pytest.fixture(scope="module")
def sasl(kafka_cluster: MakeCluster) -> Iterator[KafkaCluster]:
    with kafka_cluster(sasl=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def secure(kafka_cluster: MakeCluster, certificates: Certificates) -> Iterator[KafkaCluster]:
    with kafka_cluster(sasl=True, certificates=certificates) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tls(kafka_cluster: MakeCluster, certificates: Certificates) -> Iterator[KafkaCluster]:
    """A cluster that wants a certificate of its clients."""
    with kafka_cluster(
        certificates=certificates, overrides={"listener.name.client.ssl.client.auth": "required"}
    ) as cluster:
        yield cluster


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


def test_by_password_through_tls(secure: KafkaCluster, certificates: Certificates, wire: MakeWire, topic: str) -> None:
    trust = {"security_protocol": "SASL_SSL", "ssl_truststore_location": certificates.ca}
    assert_stores(wire, secure, topic, **(login("SCRAM-SHA-512") | trust))


@pytest.mark.parametrize("form", ["files", "texts", *javastores.KINDS])
def test_by_certificate(
    tls: KafkaCluster, certificates: Certificates, stores: javastores.Stores, wire: MakeWire, topic: str, form: str
) -> None:
    """Large batches, so that one goes out in many parts."""
    tls.admin.create_topic(topic, settings={"max.message.bytes": 10_000_000})
    client = certificates.client
    if form == "files":
        given: dict[str, object] = {
            "ssl_truststore_location": certificates.ca,
            "ssl_keystore_location": client.pem,
        }
    elif form in javastores.KINDS:
        given = javastores.settings_of(stores, form)
    else:
        given = {
            "ssl_truststore_certificates": certificates.ca.read_text(),
            "ssl_keystore_certificate_chain": client.certificate.read_text(),
            "ssl_keystore_key": client.key.read_text(),
        }
    here = wire(tls.bootstrap_servers, **({"security_protocol": "SSL"} | given))
    for size in (10, 5_000_000, 10):
        assert here.store(make_batch([bytes(size)], to=TopicPartition(topic, 0)))[0].error is None
    large = make_batch([os.urandom(1_000_000)], to=TopicPartition(topic, 0))
    for slot_size in (1024, 16_384):  # the broker looks at the checksum
        assert here.store(scattered(large, slot_size))[0].error is None


def test_logs_in_again_before_the_session_ends(kafka_cluster: MakeCluster, wire: MakeWire, topic: str) -> None:
    """KIP-368: over the same connection, between two requests, whatever else there is to be watched for."""
    long = {
        "request_timeout_ms": 100_000,
        "delivery_timeout_ms": 200_000,
        "socket_connection_setup_timeout_ms": 100_000,
        "socket_connection_setup_timeout_max_ms": 100_000,
    }
    with kafka_cluster(sasl=True, overrides={"connections.max.reauth.ms": 5000}) as cluster:
        cluster.admin.create_topic(topic)
        to = TopicPartition(topic, 0)
        here = wire(cluster.bootstrap_servers, **login("SCRAM-SHA-256"), **long)
        node = here.connect(to)
        connection = here.transport._brokers.connection(node)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            assert here.store(make_batch([b"x"], to=to))[0].error is None
            here.poll(20)
        here.connect(to)  # on a slow machine, the login is still under way
        assert here.transport._brokers.connection(node) is connection


# --- not let in -------------------------------------------------------------------------------------------


def failure_of(wire: MakeWire, servers: str, **settings: object) -> type[KafkaError]:
    here = wire(servers, **settings)
    failure: type[KafkaError] = here.ask_until(here.transport.failure)
    assert here.transport.cluster().topic_errors == {"t": failure}
    return failure


@pytest.mark.parametrize("change", [{"sasl_tokenauth": False}, {"sasl_password": "not-it"}])
def test_a_delegation_token_that_is_none(
    sasl: KafkaCluster, delegation_token: tuple[str, str], wire: MakeWire, change: dict[str, object]
) -> None:
    """A token is none of the users, and needs its HMAC."""
    token_id, token_hmac = delegation_token
    token = {"sasl_username": token_id, "sasl_password": token_hmac, "sasl_tokenauth": True} | change
    assert failure_of(wire, sasl.bootstrap_servers, **login("SCRAM-SHA-256", **token)) is SaslAuthenticationError


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(sasl: KafkaCluster, wire: MakeWire, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    failure = failure_of(wire, sasl.bootstrap_servers, **login(mechanism, sasl_password="not-it"))
    assert failure is SaslAuthenticationError
    assert "the broker refused the login" in caplog.text
    assert "not-it" not in caplog.text


def test_a_password_that_becomes_right(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    """The user is created after the first, refused attempt: a later one succeeds."""
    sasl.admin.create_topic(topic)
    sasl.admin.allow("carol", topic)
    here = wire(sasl.bootstrap_servers, **login("SCRAM-SHA-256", sasl_username="carol", sasl_password="new"))
    here.transport.request_update([topic])
    assert here.until(here.transport.failure) is SaslAuthenticationError
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    client = AdminClient({"bootstrap.servers": sasl.internal_servers, "log_level": 0})
    for change in client.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, b"new")]).values():
        change.result(30)
    assert here.store(make_batch([b"x"], to=TopicPartition(topic, 0)))[0].error is None
    assert here.transport.failure() is None


def test_no_token(sasl: KafkaCluster, wire: MakeWire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    given = BY_TOKEN | {"sasl_oauthbearer_token_provider": "tokens.no_token"}
    assert failure_of(wire, sasl.bootstrap_servers, **given) is SaslAuthenticationError
    assert "raised RuntimeError" in caplog.text
    assert "very-secret" not in caplog.text


def test_mechanism_the_broker_does_not_offer(
    kafka_cluster: MakeCluster, wire: MakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    with kafka_cluster(sasl=True, overrides={"sasl.enabled.mechanisms": "PLAIN"}) as cluster:
        failure = failure_of(wire, cluster.bootstrap_servers, **login("SCRAM-SHA-256"))
    assert failure is UnsupportedSaslMechanismError
    assert "does not offer sasl.mechanism SCRAM-SHA-256, but PLAIN" in caplog.text


def test_an_authority_that_we_do_not_trust(tls: KafkaCluster, wire: MakeWire, caplog: pytest.LogCaptureFixture) -> None:
    assert failure_of(wire, tls.bootstrap_servers, security_protocol="SSL") is SslAuthenticationError
    assert "unable to get local issuer certificate" in caplog.text


@pytest.mark.parametrize("ours", ["none", "expired"])
def test_a_certificate_that_the_broker_does_not_accept(
    tls: KafkaCluster, certificates: Certificates, wire: MakeWire, ours: str
) -> None:
    given: dict[str, object] = {"security_protocol": "SSL", "ssl_truststore_location": certificates.ca}
    if ours == "expired":
        given["ssl_keystore_location"] = certificates.expired.pem
    assert failure_of(wire, tls.bootstrap_servers, **given) is SslAuthenticationError


def test_an_expired_certificate_of_the_brokers(
    kafka_cluster: MakeCluster, certificates: Certificates, wire: MakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"listener.name.client.ssl.keystore.location": certificates.expired.pem}
    given = {"security_protocol": "SSL", "ssl_truststore_location": certificates.ca}
    with kafka_cluster(certificates=certificates, overrides=overrides) as cluster:
        assert failure_of(wire, cluster.bootstrap_servers, **given) is SslAuthenticationError
    assert "certificate has expired" in caplog.text


def test_a_name_that_is_not_the_certificates(
    secure: KafkaCluster, certificates: Certificates, wire: MakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    port = secure.bootstrap_servers.partition(":")[2]
    trust = {"security_protocol": "SASL_SSL", "ssl_truststore_location": certificates.ca}
    given = login() | trust
    assert failure_of(wire, f"127.1:{port}", **given) is SslAuthenticationError
    assert "certificate is not valid for '127.1'" in caplog.text
    unchecked = wire(f"127.1:{port}", ssl_endpoint_identification_algorithm="", **given)
    unchecked.ask_until(lambda: unchecked.transport.cluster().nodes)


def test_plain_text_to_a_broker_that_speaks_tls(
    tls: KafkaCluster, wire: MakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    here = wire(tls.bootstrap_servers)
    here.ask_until(lambda: "the next one" in caplog.text)
    assert "set security.protocol to SSL" in caplog.text
    assert here.transport.failure() is None


def test_tls_to_a_broker_that_does_not_speak_it(
    sasl: KafkaCluster, certificates: Certificates, wire: MakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    here = wire(sasl.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=certificates.ca)
    here.ask_until(lambda: "connection to broker" in caplog.text)


def test_one_topic_of_two_is_forbidden(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    forbidden, allowed = f"{topic}-forbidden", f"{topic}-allowed"
    for each in (forbidden, allowed):
        sasl.admin.create_topic(each)
    sasl.admin.allow("alice", forbidden, AclOperation.DESCRIBE)
    here = wire(sasl.bootstrap_servers, **login())
    # In one request: the one does not keep the other from being stored.
    where = [TopicPartition(forbidden, 0), TopicPartition(allowed, 0)]
    for to in where:
        here.leader(to)
    answers = here.store(*(make_batch([b"x"], to=to) for to in where))
    assert [answer.error for answer in answers] == [TopicAuthorizationError, None]


def test_a_topic_that_may_not_even_be_described(sasl: KafkaCluster, wire: MakeWire, topic: str) -> None:
    sasl.admin.create_topic(topic)
    sasl.admin.deny("alice", topic, AclOperation.ALL)
    here = wire(sasl.bootstrap_servers, **login())
    here.transport.request_update([topic])
    assert here.until(lambda: here.transport.cluster().topic_errors) == {topic: TopicAuthorizationError}
    assert here.transport.failure() is None


# --- settings that cannot work --------------------------------------------------------------------------


def test_files_that_cannot_be_used(certificates: Certificates, tmp_path: Any) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate at all")
    for setting in ("ssl.truststore.location", "ssl.keystore.location"):
        for path in (nonsense, tmp_path / "missing.pem"):
            with pytest.raises(ConfigError, match=f"{setting} = '{path}'"):
                start_transport(security_protocol="SSL", **{setting: path})


def test_texts_that_cannot_be_used(certificates: Certificates) -> None:
    key = certificates.client.key.read_text()
    with pytest.raises(ConfigError, match=r"ssl.truststore.certificates = \[hidden\]"):
        start_transport(security_protocol="SSL", ssl_truststore_certificates="very secret")
    with pytest.raises(ConfigError, match=r"ssl.keystore.key = \[hidden\]") as caught:
        start_transport(security_protocol="SSL", ssl_keystore_certificate_chain="nonsense", ssl_keystore_key=key)
    assert key not in str(caught.value)


def test_a_key_without_its_password(certificates: Certificates, tmp_path: Any) -> None:
    """OpenSSL does not ask the terminal for one."""
    encrypted = tmp_path / "encrypted.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", certificates.client.key, "-passout", "pass:open", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    encrypted.write_text(encrypted.read_text() + certificates.client.certificate.read_text())
    given = {"security_protocol": "SSL", "ssl_keystore_location": encrypted}
    for password in ({}, {"ssl_key_password": "wrong"}):
        with pytest.raises(ConfigError, match="wrong password of the key"):
            start_transport(**given, **password)
    start_transport(**given, ssl_key_password="open")


def test_a_token_provider_that_is_not_there() -> None:
    given = BY_TOKEN | {"sasl_oauthbearer_token_provider": "no_such_module.token"}
    with pytest.raises(ConfigError, match="no_such_module"):
        start_transport(**given)
