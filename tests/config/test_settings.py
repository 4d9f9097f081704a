"""The definitions: what they promise of Kafka, and that they hold together."""

import pickle
import re

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.config.configdef import Scope
from shmaccum.config.foreign_settings import ELSEWHERE
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

LOG = {"transport": "log", "log.dir": "/data/out"}
KAFKA_DEFAULTS = """
    acks=all batch.size=16384 buffer.memory=33554432 bootstrap.servers=[] client.dns.lookup=use_all_dns_ips
    client.id="" transactional.id="" transaction.timeout.ms=60000 compression.gzip.level=-1 compression.lz4.level=9
    compression.type=none compression.zstd.level=3 connections.max.idle.ms=540000 delivery.timeout.ms=120000
    enable.idempotence=true flush.messages=9223372036854775807 flush.ms=9223372036854775807 interceptor.classes=[]
    linger.ms=5 max.block.ms=60000 max.in.flight.requests.per.connection=5 max.request.size=1048576
    message.format.version=3.0-IV1 metadata.max.age.ms=300000 metadata.max.idle.ms=300000
    metadata.recovery.rebootstrap.trigger.ms=300000 metadata.recovery.strategy=rebootstrap num.partitions=1
    partitioner.adaptive.partitioning.enable=true partitioner.availability.timeout.ms=0
    partitioner.ignore.keys=false receive.buffer.bytes=32768 reconnect.backoff.max.ms=1000 reconnect.backoff.ms=50
    request.timeout.ms=30000 retries=2147483647 retry.backoff.max.ms=1000 retry.backoff.ms=100 sasl.jaas.config=null
    sasl.mechanism=GSSAPI security.protocol=PLAINTEXT segment.bytes=1073741824 send.buffer.bytes=131072
    socket.connection.setup.timeout.max.ms=30000 socket.connection.setup.timeout.ms=10000
    ssl.endpoint.identification.algorithm=https ssl.key.password=null ssl.keystore.certificate.chain=null
    ssl.keystore.key=null ssl.truststore.certificates=null
"""


def test_defaults_are_those_of_kafka_4_but_for_one() -> None:
    """Those of other settings are in docs/configuration.md, which ``test_generate_docs.py`` compares."""
    kafkas = dict(each.split("=", 1) for each in KAFKA_DEFAULTS.split())
    ours = {name: ProducerConfig.settings[name].default_text() for name in kafkas}
    assert ours == kafkas | {"send.buffer.bytes": "-1"}


def test_defaults_are_valid_and_documentation_names_only_settings_that_exist() -> None:
    for name, setting in ProducerConfig.settings.items():
        assert setting.parse(setting.default) == setting.default, name
        assert setting.doc.endswith("."), name
        dotted = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", setting.doc))
        assert dotted <= set(ProducerConfig.settings), name


def test_what_may_differ_between_the_producers_of_a_slab() -> None:
    own = """
        batch.max.bytes batch.size compression.type delivery.timeout.ms interceptor.classes key.serializer linger.ms
        max.block.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
        partitioner.ignore.keys retries transaction.timeout.ms transactional.id value.serializer
    """
    found = [name for name, setting in ProducerConfig.settings.items() if setting.scope is Scope.PRODUCER]
    assert sorted(found) == own.split()


LOWEST = """
    batch.size=0 buffer.memory=16384/1023 compression.gzip.level=1/0 compression.gzip.level=-1/-2
    compression.lz4.level=1 compression.zstd.level=-131072 delivery.timeout.ms=30005/-1 flush.messages=1 flush.ms=0
    linger.ms=0 max.block.ms=0 max.in.flight.requests.per.connection=1 max.request.size=0 metadata.max.age.ms=0
    metadata.max.idle.ms=5000 metadata.recovery.rebootstrap.trigger.ms=0 num.partitions=1
    partitioner.availability.timeout.ms=0 receive.buffer.bytes=-1 reconnect.backoff.max.ms=0 reconnect.backoff.ms=0
    request.timeout.ms=0 retry.backoff.max.ms=0 retry.backoff.ms=0 segment.bytes=16384/1023 send.buffer.bytes=-1
    sender.idle.ms=-1 shmaccum.max.partitions=1 shmaccum.max.processes=2 shmaccum.max.topics=1 shmaccum.slot.size=1024
"""
"""What is allowed, and after the slash what is too low, if that is not one less: another rule has another limit."""


@pytest.mark.parametrize("bound", LOWEST.split())
def test_lower_bounds(bound: str) -> None:
    name, _, limits = bound.partition("=")
    lowest, *lower = map(int, limits.split("/"))
    too_low = lower[0] if lower else lowest - 1
    assert ProducerConfig.parse(LOG | {name: str(lowest)})[name] == lowest
    with pytest.raises(ConfigError, match=f"^{re.escape(name)} = {too_low}: must be "):
        ProducerConfig.parse(LOG | {name: too_low})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("transport", "pulsar"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
        ("compression.type", "lzma"),
        ("compression.gzip.level", 10),
        ("compression.lz4.level", 18),
        ("compression.zstd.level", 23),
        ("metadata.recovery.strategy", "retry"),
        ("sasl.mechanism", "DIGEST-MD5"),
        ("sasl.oauthbearer.token.provider", "not a name"),
        ("security.protocol", "TLS"),
        ("ssl.endpoint.identification.algorithm", "ldaps"),
        ("acks", "2"),
        ("retries", -1),
        ("shmaccum.max.processes", 1025),
        *[("shmaccum.name", wrong) for wrong in ("a/b", "ä", "x" * 65, "a.b", "-a")],
        ("interceptor.classes", "json.dumps,json.dumps"),
        *[("message.format.version", wrong) for wrong in ("", "v3", "2", "0.10-IV", "1.0.0.0.0")],
    ],
)
def test_values_that_are_refused(name: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(name)} = .*: must be "):
        ProducerConfig.parse(LOG | {name: wrong})


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("sasl.mechanism", " scram-sha-512", "SCRAM-SHA-512"),
        ("security.protocol", "ssl", "SSL"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("ssl.truststore.type", "pem", "PEM"),
    ],
)
def test_words_in_any_case(name: str, given: str, taken: str) -> None:
    assert ProducerConfig.parse(LOG | {name: given})[name] == taken


def test_advice_is_for_foreign_names_and_names_existing_settings() -> None:
    assert not set(ELSEWHERE) & set(ProducerConfig.settings)
    begins = "sasl|ssl|enable|buffer|batch|compression|bootstrap|max|delivery|linger"
    known = re.compile(rf"(?<![.\w])(?:{begins})(?:\.[a-z]+)+\b")
    named = {name for advice in ELSEWHERE.values() for name in known.findall(advice)}
    assert named
    assert named <= set(ProducerConfig.settings)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("ssl.ca.location", "librdkafka's name for ssl.truststore.location"),
        ("config.providers", "leave it out, and give the values themselves"),
        *[
            (f"sasl.oauthbearer.{name}", "Kafka's setting is not supported here; leave it out: ")
            for name in (
                "assertion.file",
                "client.credentials.client.id",
                "expected.audience",
                "jwks.endpoint.url",
                "scope",
            )
        ],
        *[(name, "leave it out: it is a setting of other clients") for name in ("group.protocol", "client.rack")],
    ],
)
def test_settings_of_other_clients_are_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{name}: no such setting; {advice}')}"):
        ProducerConfig.parse({"bootstrap.servers": "broker1:9092", name: "x"})


# --- what every set of settings does: parse, refuse, and stay as it is -----------------------------------


def test_cannot_be_changed() -> None:
    given: dict[str, object] = LOG | {"client.id": "a", "linger.ms": "20"}
    config = ProducerConfig.parse(given)

    given |= {"client.id": "b"}
    config.as_dict()["client.id"] = "b"
    for name, value in (("client_id", "b"), ("new", "b"), ("explicit", frozenset())):
        with pytest.raises(AttributeError):
            setattr(config, name, value)
    assert config.client_id == config["client.id"] == config.as_dict()["client.id"] == "a"
    assert config.linger_ms == 20
    assert config.explicit == set(given)


def test_survives_pickling_and_shows_no_password() -> None:
    config = ProducerConfig.parse(LOG | {"linger.ms": 5, "retries": 7, "sasl.password": "secret"})

    assert repr(config) == (
        "ProducerConfig({'retries': 7, 'sasl.password': [hidden], 'log.dir': '/data/out', 'transport': 'log'})"
    )
    assert "secret" not in str(config.as_dict())
    copy = pickle.loads(pickle.dumps(config))
    assert copy.as_dict() == config.as_dict()
    assert copy.explicit == config.explicit
    assert copy.sasl_password == Password("secret")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linger.msec": 1}, ["linger.msec: no such setting; did you mean linger.ms?"]),
        ({"linger_ms": 1}, ["linger_ms: no such setting; did you mean linger.ms?"]),
        ({"LINGER.MS": 1}, ["LINGER.MS: no such setting; did you mean linger.ms?"]),
        ({"xyz": 1}, ["xyz: no such setting; docs/configuration.md lists all settings"]),
        ({"linger.ms": "often"}, ["linger.ms = 'often': expected a whole number of at most 64 bits"]),
        ({"linger.ms": -1}, ["linger.ms = -1: must be at least 0"]),
        ({"sasl.password": ["secret"]}, ["sasl.password = [hidden]: expected text (str), not list"]),
        (
            {"linger.ms": -1, "sasl.passwort": "a", "client.id": 1},
            [
                "3 problems in the configuration:",
                "- linger.ms = -1: must be at least 0",
                "- sasl.passwort: no such setting; did you mean sasl.password?",
                "- client.id = 1: expected text (str), not int",
            ],
        ),
        (
            {"batch.max.bytes": 9999999, "log.dir": ""},
            [
                "2 problems in the configuration:",
                "- log.dir is missing: transport log needs a directory to write to",
                "- batch.max.bytes = 9999999: must be at most max.request.size, which is 1048576; a batch of that size "
                "would be refused",
            ],
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once(given: dict[str, object], said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig.parse(LOG | given)
    assert str(refused.value).splitlines() == said
