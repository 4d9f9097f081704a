"""Logins by Kerberos: with a center and Apache Kafka where these can be had, and what can be said without them."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from batches import make_batch
from brokers import MakeCluster
from examples import example
from fixture_types import LogCapture, MonkeyPatch
from kdc import REALM, Kdc, missing_kerberos
from producers import kafka_settings, wait_until, wait_until_gone
from wires import MakeWire, assert_stores, start_transport

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import ApiVersionError, ConfigError, SaslAuthenticationError, ShmaccumError
from shmaccum.kafka.mechanisms import Kerberos
from tools.kafka import KafkaCluster
from tools.kafka.jars import class_archive

BY_KERBEROS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}
HOST = "127.0.0.1"


def by_keytab(keytab: Path, principal: str = "alice", **more: object) -> dict[str, Any]:
    """Return the settings as Spark jobs have them."""
    line = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false "
        f'serviceName="kafka" keyTab="{keytab}" principal="{principal}@{REALM}";'
    )
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_jaas_config": line} | more


# --- without a center -------------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch: MonkeyPatch) -> None:
    """Pass for having the package gssapi, of which nothing is used."""
    if find_spec("gssapi") is None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: True)


def test_without_the_library(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ApiVersionError, match=r"pip install 'shmaccum\[kerberos\]'"):
        start_transport(**BY_KERBEROS)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "the file is no keytab"),
        (b"\5", "the file is no keytab"),
        (b"-----BEGIN CERTIFICATE-----", "the file is no keytab"),
    ],
)
def test_a_file_that_is_no_keytab(
    library: None, wire: MakeWire, tmp_path: Path, content: bytes | None, why: str
) -> None:
    keytab = tmp_path / "keytab"
    if content is not None:
        keytab.write_bytes(content)
    with pytest.raises(ConfigError, match=f"sasl.kerberos.keytab = '{keytab}': {why}"):
        start_transport(**by_keytab(keytab))
    keytab.write_bytes(b"\5\2")
    wire("127.0.0.1:9092", **by_keytab(keytab))


def test_a_keytab_of_another_user(library: None, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    keytab = tmp_path / "keytab"
    keytab.write_bytes(b"\5\2")
    keytab.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        start_transport(**by_keytab(keytab))


class FakeError(Exception):
    """Stands for GSSError."""

    maj_code, min_code = 13, 25

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return [f"{'major' if is_major else 'minor'} {code}"]


class FakeContext:
    """Stands for what holds the tickets; complete when the broker has answered the first token."""

    initiator_name = "alice@REALM"

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token == b"wrong":
            raise FakeError
        self.complete = token is not None
        return None if self.complete else b"ticket"

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"wrapped "):
            raise FakeError
        return SimpleNamespace(message=message.removeprefix(b"wrapped "))

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + message)


@pytest.fixture
def fake_library(monkeypatch: MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the package gssapi; return the credentials that are asked for."""
    asked: list[dict[str, Any]] = []
    module: Any = ModuleType("gssapi")
    module.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
    module.MechType = SimpleNamespace(kerberos="kerberos")
    module.RequirementFlag = SimpleNamespace(mutual_authentication="mutual")
    module.exceptions = SimpleNamespace(GSSError=FakeError)
    module.Name = lambda text, kind: SimpleNamespace(canonicalize=lambda mechanism: (text, kind), text=text)
    module.SecurityContext = FakeContext

    def credentials(**given: Any) -> str:
        asked.append(given | {"name": given["name"].text})
        return "credentials"

    module.Credentials = credentials
    monkeypatch.setitem(sys.modules, "gssapi", module)
    return asked


def test_a_login(fake_library: list[dict[str, Any]]) -> None:
    """RFC 4752: tokens until the context is complete, then which protection there is."""
    login = Kerberos("broker.example", "kafka")
    assert login._context.given["name"] == ("kafka@broker.example", "service")
    assert login._context.given["creds"] is None
    assert login._context.given["flags"] == "mutual"
    assert fake_library == []
    assert login.auth_bytes() == b"ticket"
    login.receive(b"of the broker")
    assert login.auth_bytes() == b""
    login.receive(b"wrapped \7\0\xff\xff")
    assert login.auth_bytes() == b"wrapped \1\0\0\0alice@REALM"
    assert not login.is_done
    login.receive(b"")
    assert login.is_done


def test_credentials_by_keytab(fake_library: list[dict[str, Any]]) -> None:
    """Neither by the environment, nor into the user's own cache."""
    login = Kerberos("broker.example", "kafka", "alice@REALM", "/k")
    assert login._context.given["creds"] == "credentials"
    client = {"client_keytab": "/k", "ccache": "MEMORY:alice@REALM by /k"}
    assert fake_library == [
        {"name": "alice@REALM", "usage": "accept", "store": {"keytab": "/k"}},
        {"name": "alice@REALM", "usage": "initiate", "store": client},
    ]


FAILED = r"login of the user by .* to kafka@broker\.example failed: minor 25"
LAYER = "demands a security layer of GSSAPI: Kafka has none"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        *[(messages, FAILED) for messages in ([b"wrong"], [b"of the broker", b""], [b"of the broker", b"nonsense"])],
        *[([b"of the broker", b"wrapped " + layers], LAYER) for layers in (b"", b"\1", b"\6\0\xff\xff", b"\1\0\0\0\0")],
    ],
)
def test_a_broker_that_fails_the_login(fake_library: list[dict[str, Any]], messages: list[bytes], why: str) -> None:
    login = Kerberos("broker.example", "kafka")
    *first, last = messages
    for message in first:
        login.receive(message)
    with pytest.raises(SaslAuthenticationError, match=why):
        login.receive(last)


# --- with one -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    if missing := missing_kerberos():
        pytest.skip(missing)
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        yield kdc


@pytest.fixture
def kdc(realm: Kdc, monkeypatch: MonkeyPatch) -> Kdc:
    """Return a center that this process, and those that it starts, find."""
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    return realm


@pytest.fixture(scope="module")
def alice(realm: Kdc) -> Path:
    return realm.add("alice")


@pytest.fixture(scope="module")
def kerberized(realm: Kdc, kafka_cluster: MakeCluster) -> Iterator[KafkaCluster]:
    """A broker that accepts clients with a ticket."""
    keytab = realm.add(f"kafka/{HOST}")
    line = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true isInitiator=false "
        f'keyTab="{keytab}" principal="kafka/{HOST}@{REALM}";'
    )
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.client.gssapi.sasl.jaas.config": line,
    }
    options = (f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:cds=off", f"-Djava.security.krb5.conf={realm.config}")
    cluster = kafka_cluster(sasl=True, overrides=settings, jvm_options=options)
    cluster.start()
    yield cluster
    cluster.stop()


def test_by_keytab(kdc: Kdc, kerberized: KafkaCluster, wire: MakeWire, topic: str) -> None:
    """As who the keytab says; the user's own credential cache is neither needed nor written to."""
    kerberized.admin.allow("grace", topic)
    by_hers = by_keytab(kdc.add("grace"), "grace")
    assert_stores(wire, kerberized, f"{topic}-2", **by_hers)
    assert_stores(wire, kerberized, topic, **by_hers)
    assert kdc.issued("AS_REQ", "grace") == 1, "the second login has the first one's ticket"
    assert not (kdc.directory / "ccache").exists()


@pytest.mark.parametrize("principal", ["", f"bob@{REALM}"])
def test_by_the_credential_cache(
    kdc: Kdc, kerberized: KafkaCluster, wire: MakeWire, topic: str, principal: str, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.directory / 'of-bob'}")
    kdc.log_in("bob", kdc.add("bob"))
    assert_stores(wire, kerberized, topic, sasl_kerberos_principal=principal, **BY_KERBEROS)


def test_a_producer(kdc: Kdc, kerberized: KafkaCluster, alice: Path, slab_name: str, topic: str) -> None:
    """By the sender as a process, which inherits where the realm is; with the options that docs/spark.md has."""
    kerberized.admin.create_topic(topic)
    changes = {
        "broker1:9092,broker2:9092": kerberized.bootstrap_servers,
        "SASL_SSL": kerberized.security_protocol,
        "/etc/security/keytabs/etl.keytab": str(alice),
        "etl@EXAMPLE.COM": f"alice@{REALM}",
    }
    names: dict[str, Any] = {}
    exec(example("Kerberos", changes, page="docs/spark.md"), names)
    options = {name.removeprefix("kafka."): value for name, value in names["options"].items()}
    with Producer(kafka_settings(kerberized.bootstrap_servers, slab_name) | options) as producer:
        assert producer.send(topic, b"x").get(60).offset == 0
    wait_until_gone(slab_name)


def test_producer_gets_the_reason_of_a_failed_login(
    kdc: Kdc, kerberized: KafkaCluster, alice: Path, slab_name: str, tmp_path: Path
) -> None:
    def failure(name: str, **given: object) -> str:
        settings = kafka_settings(kerberized.bootstrap_servers, name, **given)
        with pytest.raises(ShmaccumError) as caught, Producer(settings) as producer:
            producer.send("t", b"x").get(60)
        wait_until_gone(name)
        return f"{type(caught.value).__name__}: {caught.value}"

    no_key = failure(slab_name, **by_keytab(alice, "dave"))
    assert no_key.startswith("SaslAuthenticationError: ")
    assert f"sasl.kerberos.service.name = 'kafka', sasl.kerberos.principal = 'dave@{REALM}'" in no_key
    assert f"login of dave@{REALM} by sasl.kerberos.keytab '{alice}' to kafka@{HOST} failed: No key table ent" in no_key
    missing = tmp_path / "missing.keytab"
    no_file = failure(f"{slab_name}-missing", **by_keytab(missing))
    assert f"sasl.kerberos.keytab = '{missing}': cannot be read: No such file or directory" in no_file


def test_a_login_after_the_ticket_has_expired(kdc: Kdc, kerberized: KafkaCluster, wire: MakeWire, topic: str) -> None:
    keytab = kdc.add("carol", "-maxlife", "2seconds")
    assert_stores(wire, kerberized, topic, **by_keytab(keytab, "carol"))
    issued = kdc.issued("AS_REQ", "carol")
    assert issued > 0
    time.sleep(2.5)  # it is the clock that a ticket expires by
    assert_stores(wire, kerberized, f"{topic}-2", **by_keytab(keytab, "carol"))
    assert kdc.issued("AS_REQ", "carol") > issued


def refusal(wire: MakeWire, cluster: KafkaCluster, caplog: LogCapture, **settings: object) -> str:
    caplog.set_level(logging.DEBUG)
    here = wire(cluster.bootstrap_servers, **settings)
    assert here.ask_until(here.transport.failure) is SaslAuthenticationError
    return caplog.text


def test_a_keytab_that_has_gone(
    kdc: Kdc, kerberized: KafkaCluster, alice: Path, wire: MakeWire, tmp_path: Path, caplog: LogCapture
) -> None:
    """After the start: a login says so, and the next one finds it again."""
    keytab = tmp_path / "keytab"
    keytab.write_bytes(alice.read_bytes())
    here = wire(kerberized.bootstrap_servers, **by_keytab(keytab))
    content = keytab.read_bytes()
    keytab.unlink()
    assert here.ask_until(here.transport.failure) is SaslAuthenticationError
    assert f"Key table file '{keytab}' not found" in caplog.text
    keytab.write_bytes(content)
    here.until(lambda: here.transport.failure() is None)


def test_a_keytab_whose_key_is_an_old_one(
    kdc: Kdc, kerberized: KafkaCluster, wire: MakeWire, tmp_path: Path, caplog: LogCapture
) -> None:
    old = tmp_path / "old"
    old.write_bytes(kdc.add("erin").read_bytes())
    kdc.new_key("erin")
    assert "failed: Decrypt integrity check failed" in refusal(wire, kerberized, caplog, **by_keytab(old, "erin"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {
                "sasl_kerberos_service_name": "kafak",
                "sasl_kerberos_keytab": "{alice}",
                "sasl_kerberos_principal": f"alice@{REALM}",
            },
            f"failed: Server kafak/{HOST}@{REALM} not found in Kerberos database",
        ),
        ({}, "failed: No Kerberos credentials available"),
    ],
    ids=["no service", "no credential cache"],
)
def test_refused_login_names_its_cause(
    kdc: Kdc,
    kerberized: KafkaCluster,
    alice: Path,
    wire: MakeWire,
    caplog: LogCapture,
    given: dict[str, str],
    said: str,
) -> None:
    settings = {name: value.replace("{alice}", str(alice)) for name, value in given.items()}
    assert said in refusal(wire, kerberized, caplog, **BY_KERBEROS | settings)


def test_a_center_that_is_away(
    kdc: Kdc, kerberized: KafkaCluster, wire: MakeWire, topic: str, caplog: LogCapture
) -> None:
    """The error names it, and it is asked again; a login with a valid ticket does not need it."""
    keytab = kdc.add("frank")
    kerberized.admin.create_topic(topic)
    kdc.stop()
    try:
        here = wire(kerberized.bootstrap_servers, **by_keytab(keytab, "frank"))
        here.transport.request_update([topic])
        assert here.until(here.transport.failure) is SaslAuthenticationError
        assert f"Cannot contact any KDC for realm '{REALM}'" in caplog.text
    finally:
        kdc.start()
    assert here.store(make_batch([b"x"], to=TopicPartition(topic, 0)))[0].error is None
    assert here.transport.failure() is None
    kdc.stop()
    try:
        assert_stores(wire, kerberized, f"{topic}-2", **by_keytab(keytab, "frank"))
    finally:
        kdc.start()


def test_a_center_that_does_not_answer(
    kdc: Kdc,
    kerberized: KafkaCluster,
    alice: Path,
    wire: MakeWire,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    caplog: LogCapture,
) -> None:
    """The login waits for it, and the sender does not: it gives the attempt up in time."""
    keytab = tmp_path / "keytab"  # of which there is no ticket
    keytab.write_bytes(alice.read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "krb5.conf"
        config.write_text(kdc.config.read_text().replace(f":{kdc.port}", f":{silent.getsockname()[1]}"))
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        short = {"socket_connection_setup_timeout_ms": 100, "socket_connection_setup_timeout_max_ms": 100}
        here = wire(kerberized.bootstrap_servers, **by_keytab(keytab), **short)
        here.ask_until(lambda: "Kerberos takes longer" in caplog.text)
        assert background_calls(), "the login still waits"
        assert here.transport.failure() is None
    wait_until(lambda: not background_calls(), "the login has failed: the connection to the center is reset")


def background_calls() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "shmaccum-background-call"]
