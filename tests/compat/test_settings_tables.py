"""Settings of the other clients: what they become, which are refused, and that docs/compat.md says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka.errors import KafkaConfigurationError

from shmaccum.compat.confluent import settings as confluent_settings
from shmaccum.compat.kafka_python import settings as kafka_python_settings
from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
OF_LIBRDKAFKA = {
    *(*confluent_settings.RENAMED, *confluent_settings.CONVERTED, *confluent_settings.ONLY),
    *(*confluent_settings.WITHOUT_EFFECT, *confluent_settings.OF_CONSUMERS, *confluent_settings.REFUSED),
}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compat.md"


def parsed(given: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Translate librdkafka's settings, some of them with ``_`` for ``.``; return the configuration."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_settings.translate(NOWHERE | (given or {}) | named).config


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"acks": -1}, "acks", "all"),
        ({"bootstrap.servers": "a, b:9,"}, "bootstrap.servers", ("a:9092", "b:9")),
        (
            {"metadata.broker.list": "SSL://a:1,[::1],::1,[::2]:1"},
            "bootstrap.servers",
            ("[::1]:9092", "[::2]:1", "a:1"),
        ),
        ({"request.required.acks": "1"}, "acks", "1"),
        ({"linger.ms": 0.5}, "linger.ms", 1),
        ({"queue.buffering.max.ms": "10"}, "linger.ms", 10),
        ({"queue.buffering.max.kbytes": 2048}, "buffer.memory", 2 << 20),
        ({"message.max.bytes": 2000}, "max.request.size", 2000),
        ({"message.timeout.ms": 0}, "delivery.timeout.ms", (1 << 31) - 1),
        ({"message.timeout.ms": 1000}, "request.timeout.ms", 995),
        ({"message.timeout.ms": 3}, "linger.ms", 3),
        ({"socket.timeout.ms": 5000}, "request.timeout.ms", 5000),
        ({"compression.codec": "zstd", "compression.level": 7}, "compression.zstd.level", 7),
        ({"compression.type": "gzip", "compression.level": -1}, "compression.gzip.level", -1),
        ({"max.in.flight": 100}, "enable.idempotence", False),
        ({"max.in.flight": 100}, "max.in.flight.requests.per.connection", 100),
        ({}, "batch.size", 1_000_000),
        ({}, "batch.max.bytes", 1 << 20),
        ({"queue.buffering.max.kbytes": 100}, "batch.size", 1_000_000),
        ({"batch.size": 1}, "batch.size", 1),
        ({"batch.size": "2000"}, "batch.max.bytes", 2000),
        ({"batch.size": 100_000, "batch.max.bytes": 50_000}, "batch.max.bytes", 50_000),
        ({"socket.send.buffer.bytes": 0}, "send.buffer.bytes", -1),
        ({"connections.max.idle.ms": 0}, "connections.max.idle.ms", -1),
        ({"ssl.endpoint.identification.algorithm": "none"}, "ssl.endpoint.identification.algorithm", ""),
        ({"security.protocol": "sasl_plaintext"}, "sasl.kerberos.service.name", "kafka"),
        ({"default.topic.config": {"acks": 1}}, "acks", "1"),
        ({"default.topic.config": {"acks": 1}, "acks": "all"}, "acks", "1"),
        ({"compression.codec": "GZIP", "compression.level": "12.0"}, "compression.gzip.level", 9),
        ({"compression.type": "gzip", "compression.level": 0}, "compression.type", "none"),
        ({"compression.type": "LZ4", "compression.level": 0}, "compression.lz4.level", 9),
        ({"enable.idempotence": "T"}, "enable.idempotence", True),
        ({"enable.idempotence": 0}, "enable.idempotence", False),
        ({"enable.gapless.guarantee": 0, "socket.nagle.disable": "t", "statistics.interval.ms": 0.0}, "acks", "all"),
        ({"client.id": 5}, "client.id", "5"),
        ({"sasl.password": 1234}, "sasl.password", Password("1234")),
        ({"retries": 1e3}, "retries", 1000),
        ({"socket.timeout.ms": "0xEA60"}, "request.timeout.ms", 60_000),
        ({"transactional.id": "id"}, "max.block.ms", 60_000),
        ({}, "max.block.ms", 0),
        ({"shmaccum.name": "mine"}, "shmaccum.name", "mine"),
    ],
)
def test_librdkafkas_settings_become_kafkas(given: dict[str, Any], name: str, value: object) -> None:
    assert parsed(given)[name] == value


def test_numbers_that_no_setting_can_have_are_refused() -> None:
    """Without the check, a negative limit made each message one too many."""
    for name, value in (
        ("queue.buffering.max.messages", -1),
        ("linger.ms", float("nan")),
        ("message.timeout.ms", "inf"),
        ("batch.size", "12kb"),
    ):
        with pytest.raises(ConfigError, match=str(value)):
            parsed({name: value})


def test_credentials_of_librdkafka(tmp_path: Path) -> None:
    config = parsed(
        security_protocol="sasl_ssl", sasl_mechanisms="SCRAM-SHA-256", sasl_username="user", sasl_password="secret"
    )
    assert (config.security_protocol, config.sasl_mechanism, config.sasl_username, config.sasl_password.value) == (
        *("SASL_SSL", "SCRAM-SHA-256"),
        *("user", "secret"),
    )
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text("# comment \u00e9\nthe certificate", encoding="utf-8")
    key.write_text("the key")
    config = parsed(security_protocol="SSL", ssl_certificate_location=str(certificate), ssl_key_location=str(key))
    found = config["ssl.keystore.certificate.chain"], config["ssl.keystore.key"]
    assert [each.value for each in found] == ["# comment \u00e9\nthe certificate", "the key"]
    with pytest.raises(ConfigError, match=rf"ssl\.key\.location = '{key}': there is no certificate"):
        parsed(ssl_key_location=str(key))
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location = '/no/such/file': cannot be read"):
        parsed(ssl_certificate_location="/no/such/file", ssl_key_location=str(key))
    with pytest.raises(KafkaConfigurationError, match="ssl_keyfile"):
        kafka_python_settings.translate({"bootstrap_servers": "h", "ssl_keyfile": str(key)})


@pytest.mark.parametrize("name", sorted({*confluent_settings.REFUSED, *confluent_settings.ONLY}))
def test_settings_without_a_counterpart_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(name)}"):
        parsed({name: "something else"})


def test_an_unknown_partitioner_is_refused() -> None:
    with pytest.raises(ConfigError, match='Invalid value for configuration property "partitioner": murmur;'):
        parsed(partitioner="murmur")


def test_the_one_value_that_says_what_is_done_is_accepted() -> None:
    for name, (value, _) in confluent_settings.ONLY.items():
        parsed({name: value})
    ignored = confluent_settings.WITHOUT_EFFECT | confluent_settings.OF_CONSUMERS
    parsed(dict.fromkeys(ignored, "1"))


def test_librdkafka_knows_all_names_that_are_translated() -> None:
    """So a name with a typing error in a table shows."""
    callbacks = {"on_delivery", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger", "default.topic.config"}
    unknown = []
    for name in sorted(OF_LIBRDKAFKA - callbacks):
        try:
            confluent_kafka.Producer({name: "no such value"})
        except TypeError:
            continue  # known, and of another type
        except confluent_kafka.KafkaException as error:
            if "No such configuration property" in error.args[0].str():
                unknown.append(name)
    assert unknown == []


def test_kafka_pythons_settings_are_all_decided() -> None:
    """A new setting of kafka-python has to be translated or refused."""
    theirs = set(kafka_python_settings.THEIR_DEFAULTS)
    same = {name for name in theirs if name.replace("_", ".") in ProducerConfig.settings}
    converted = {"partitioner", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile", "sasl_oauth_token_provider"}
    tables = (
        *(same, converted, {"metrics_enabled", "api_version"}, kafka_python_settings.RENAMED),
        *(kafka_python_settings.WITHOUT_EFFECT, kafka_python_settings.REFUSED),
    )
    assert theirs - {name for table in tables for name in table} == set()


@pytest.mark.parametrize("name", sorted(kafka_python_settings.REFUSED))
def test_kafka_pythons_settings_without_a_counterpart_are_refused_by_name(name: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=f"{name}: not supported"):
        kafka_python_settings.translate({"bootstrap_servers": "h:1", name: "something else"})
    kafka_python_settings.translate({"bootstrap_servers": "h:1", name: kafka_python_settings.THEIR_DEFAULTS[name]})


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"bootstrap_servers": "a,b:9"}, "bootstrap.servers", ("a:9092", "b:9")),
        ({"bootstrap_servers": ["a:1"]}, "bootstrap.servers", ("a:1",)),
        ({"bootstrap_servers": {"a": 1}.keys()}, "bootstrap.servers", ("a:9092",)),
        ({"bootstrap_servers": "[::1]"}, "bootstrap.servers", ("[::1]:9092",)),
        ({"bootstrap_servers": ["::1", "[::1]:9"]}, "bootstrap.servers", ("[::1]:9", "[::1]:9092")),
        ({}, "bootstrap.servers", ("localhost:9092",)),
        ({}, "linger.ms", 0),
        ({"linger_ms": 7}, "linger.ms", 7),
        ({"max_block_ms": 30e3}, "max.block.ms", 30_000),
        ({"retries": float("inf")}, "retries", (1 << 31) - 1),
        ({"compression_type": None}, "compression.type", "none"),
        ({"batch_size": 0}, "batch.size", 0),
        ({}, "send.buffer.bytes", -1),
        ({"ssl_check_hostname": False}, "ssl.endpoint.identification.algorithm", ""),
        ({"api_version": (2, 5)}, "acks", "all"),
        ({"selector": None, "metrics_num_samples": 3}, "acks", "all"),
        ({"max_in_flight_requests_per_connection": 9}, "enable.idempotence", False),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
            | {"sasl_plain_username": "user", "sasl_plain_password": "secret"},
            *("sasl.username", "user"),
        ),
    ],
)
def test_kafka_pythons_settings_become_kafkas(given: dict[str, Any], name: str, value: object) -> None:
    assert kafka_python_settings.translate(given)[name] == value


def documented(heading: str) -> set[str]:
    """Return the names in the first columns of the tables, and in lists, under a heading of docs/compat.md."""
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, heading
    rows = re.findall(r"^\| (.*?) \|", section[1], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(.+?)`", row)}


def test_the_document_has_every_setting() -> None:
    assert documented("Settings of librdkafka") == OF_LIBRDKAFKA
    assert documented("Settings of kafka-python") == set(kafka_python_settings.THEIR_DEFAULTS)
