"""Which settings contradict each other, and which are fitted to the others."""

import logging
import re
from enum import IntEnum
from typing import Any

import pytest
from fixture_types import LogCapture, MonkeyPatch

from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import INT_MAX
from shmaccum.errors import ConfigError

KAFKA = {"transport": "kafka", "bootstrap_servers": "b:1"}


def parse(**given: object) -> ProducerConfig:
    """Parse settings written with underscores, and a log.dir; None leaves one of these out."""
    given = {"transport": "log", "log_dir": "out"} | given
    return ProducerConfig.parse({name.replace("_", "."): value for name, value in given.items() if value is not None})


class Acks(IntEnum):
    LEADER = 1


def assert_refused(message: str, **given: object) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(**given)
    assert re.fullmatch(message, str(refused.value)), str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [("-1", "all"), ("all", "all"), ("1", "1"), ("0", "0"), (-1, "all"), (1, "1"), (Acks.LEADER, "1")],
)
def test_acks_have_one_spelling(spelling: object, meaning: str) -> None:
    assert parse(acks=spelling).acks == meaning


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Idempotence needs record batches.
        *[
            ({"enable_idempotence": True, "message_format_version": version}, {"enable_idempotence": True})
            for version in ("0.11", "0.11.0.0", "0.11.0-IV2", "1.0", "2.8-IV1", "10.0", "v2")
        ],
        ({"max_in_flight_requests_per_connection": 5}, {"enable_idempotence": True}),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": False}, {"enable_idempotence": False}),
        # The delivery timeout is bounded as in Kafka.
        ({"delivery_timeout_ms": 30_005}, {"delivery_timeout_ms": 30_005}),
        ({"linger_ms": 2**62}, {"delivery_timeout_ms": INT_MAX}),
        ({"linger_ms": 2**62, "delivery_timeout_ms": INT_MAX}, {"delivery_timeout_ms": INT_MAX}),
        # Slots have whole words.
        ({}, {"shmaccum_slot_size": 16384}),
        ({"batch_size": 0}, {"shmaccum_slot_size": 16384}),
        ({"batch_size": 1_000_000}, {"shmaccum_slot_size": 16384}),
        ({"buffer_memory": 10_001}, {"shmaccum_slot_size": 10_000}),
        ({"shmaccum_slot_size": 20_001}, {"shmaccum_slot_size": 20_000}),
        (
            {"batch_size": 1_000_000, "message_format_version": "0.10.2", "enable_idempotence": False},
            {"shmaccum_slot_size": 1_000_000},
        ),
        # The memory holds a request.
        ({"buffer_memory": 32768}, {"max_request_size": 32768}),
        ({"buffer_memory": 32768, "max_request_size": 32768}, {"max_request_size": 32768}),
        ({"max_request_size": 1000}, {"max_request_size": 1000}),
        ({"compression_type": "zstd", "message_format_version": "0.11"}, {"compression_type": "zstd"}),
        ({"compression_type": "lz4", "message_format_version": "v1"}, {"compression_type": "lz4"}),
        ({"segment_bytes": 8192, "batch_size": 8192, "shmaccum_slot_size": 8192}, {"segment_bytes": 8192}),
        ({"num_partitions": 4097, "shmaccum_max_partitions": 4097}, {"num_partitions": 4097}),
        # Batches grow within a request, a segment and a sixteenth of the memory; those of one byte do not.
        ({}, {"batch_max_bytes": 2**20}),
        ({"max_request_size": 2**19}, {"batch_max_bytes": 2**19}),
        ({"buffer_memory": 2**23}, {"batch_max_bytes": 2**19}),
        ({"segment_bytes": 2**18}, {"batch_max_bytes": 2**18}),
        ({"batch_size": 2**21}, {"batch_max_bytes": 2**21}),
        ({"batch_max_bytes": 1}, {"batch_max_bytes": 1}),
        # The back-off is constant where only the first was given.
        ({"reconnect_backoff_ms": 7}, {"reconnect_backoff_max_ms": 7}),
        ({"reconnect_backoff_ms": 7, "reconnect_backoff_max_ms": 9}, {"reconnect_backoff_max_ms": 9}),
        ({"reconnect_backoff_max_ms": 9}, {"reconnect_backoff_ms": 50}),
        (KAFKA | {"message_format_version": "0.11.0"}, {}),
    ],
)
def test_settings_that_fit_and_those_that_follow(given: dict[str, Any], expected: dict[str, object]) -> None:
    config = parse(**given)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("message", "given"),
    [
        *[("acks = .*", {"acks": given}) for given in (2, True, 1.0)],
        (".* retries = 0 and acks = 1;.*", {"enable_idempotence": True, "acks": "1", "retries": 0}),
        *[
            (
                "max.in.flight.requests.per.connection = 6: idempotence allows at most 5; "
                ".*enable.idempotence to false",
                {"max_in_flight_requests_per_connection": 6} | also,
            )
            for also in ({}, {"enable_idempotence": True})
        ],
        (
            "delivery.timeout.ms = 30004: must be at least linger.ms .* request.timeout.ms, which is 30005",
            {"delivery_timeout_ms": 30_004},
        ),
        (
            "shmaccum.slot.size = 1024: must be at most buffer.memory divided by 64 shards, which is 1023",
            KAFKA | {"buffer_memory": 65535, "shmaccum_shards": 64},
        ),
        (
            "shmaccum.slot.size = 20000: must be at most buffer.memory divided by 4 shards, which is 16384",
            KAFKA | {"buffer_memory": 65536, "shmaccum_shards": 4, "shmaccum_slot_size": 20000},
        ),
        (
            "shmaccum.slot.size = 32769: must be at most buffer.memory, which is 32768",
            {"buffer_memory": 32768, "shmaccum_slot_size": 32769},
        ),
        (
            "max.request.size = 32769: must be at most buffer.memory, which is 32768; .*",
            {"buffer_memory": 32768, "max_request_size": 32769},
        ),
        (
            "max.request.size = 2147483647: must be between 0 and 2080374783",
            {"buffer_memory": 2**32, "max_request_size": 2**31 - 1},
        ),
        (
            "compression.type = zstd: message.format.version v1 .*",
            {"compression_type": "zstd", "message_format_version": "v1"},
        ),
        ("log.dir is missing.*", {"log_dir": None}),
        ("log.dir is missing.*", {"log_dir": ""}),
        ("segment.bytes = 8192: must be at least batch.size, which is 16384; .*", {"segment_bytes": 8192}),
        (
            "segment.bytes = 8192: must be at least shmaccum.slot.size, which is 16384; .*",
            {"segment_bytes": 8192, "batch_size": 8192},
        ),
        (
            "num.partitions = 4097: must be at most shmaccum.max.partitions, which is 4096; .*",
            {"num_partitions": 4097, "shmaccum_max_partitions": 4096},
        ),
        (
            "batch.max.bytes = 1048577: must be at most max.request.size, which is 1048576; .*",
            {"batch_max_bytes": 2**20 + 1},
        ),
        (
            "batch.max.bytes = 70000: must be at most segment.bytes, which is 65536; .*",
            {"batch_max_bytes": 70_000, "segment_bytes": 65_536},
        ),
        (
            "message.format.version = v1: transport kafka sends record batches.*",
            KAFKA | {"message_format_version": "v1"},
        ),
        # Log is not chosen in silence.
        ("bootstrap.servers is missing: .*host:port,...", {"transport": None, "log_dir": None}),
        ("bootstrap.servers is missing: .*; .* log.dir, set transport to log", {"transport": None}),
        ("shmaccum.shards = 2: transport log has one sender; set 1", {"shmaccum_shards": 2}),
        ("shmaccum.name = 'x@2': shard 2 of 2, .*", KAFKA | {"shmaccum_shards": 2, "shmaccum_name": "x@2"}),
        ("shmaccum.name = 'x@1': shard 1 of 1, .*", {"shmaccum_name": "x@1"}),
        ("shmaccum.shards = 0: .*", {"shmaccum_shards": 0}),
        ("shmaccum.shards = 65: .*", {"shmaccum_shards": 65}),
        ("shmaccum.name = 'x@': .*", {"shmaccum_name": "x@"}),
    ],
)
def test_settings_that_contradict_each_other(message: str, given: dict[str, object]) -> None:
    assert_refused(message, **given)


def test_kafka_is_the_default_transport() -> None:
    assert ProducerConfig.parse({"bootstrap.servers": "a:1"}).transport == "kafka"


@pytest.mark.parametrize(
    "conflict",
    [
        {"acks": "0"},
        {"acks": "1"},
        {"retries": 0},
        {"message_format_version": "v1"},
        {"message_format_version": "0.10.2"},
        {"message_format_version": "0.10.2-IV0"},
    ],
)
def test_idempotence_that_is_not_possible(conflict: dict[str, object], caplog: LogCapture) -> None:
    """The default becomes false; where it was asked for, it is refused."""
    ((name, value),) = conflict.items()
    with caplog.at_level(logging.INFO, "shmaccum"):
        assert parse(**conflict).enable_idempotence is False
    (record,) = caplog.records
    assert str(value) in record.getMessage()
    obstacle = re.escape(f"{name.replace('_', '.')} = {value}")
    assert_refused(f"enable.idempotence = True: not possible with {obstacle};.*", enable_idempotence=True, **conflict)
    assert parse(enable_idempotence="false", **conflict).enable_idempotence is False


def test_a_delivery_timeout_that_was_not_given_is_raised_if_it_is_too_short(caplog: LogCapture) -> None:
    assert parse(linger_ms=90_000).delivery_timeout_ms == 120_000
    assert caplog.text == ""
    assert parse(linger_ms=100_000, request_timeout_ms=30_000).delivery_timeout_ms == 130_000
    assert "130000" in caplog.text


@pytest.mark.parametrize(
    ("buffer_memory", "topics", "partitions"),
    [(1 << 20, 512, 4096), (32 << 20, 10_922, 32_768), (1 << 37, 100_000, 200_000)],
)
def test_the_tables_follow_the_memory(buffer_memory: int, topics: int, partitions: int) -> None:
    config = parse(buffer_memory=buffer_memory)
    assert (config.shmaccum_max_topics, config.shmaccum_max_partitions) == (topics, partitions)
    same = parse(buffer_memory=buffer_memory, shmaccum_max_topics=" AUTO ", shmaccum_max_partitions=partitions)
    assert same.slab_digest(0) == config.slab_digest(0)
    assert parse(buffer_memory=buffer_memory, shmaccum_max_topics=7).shmaccum_max_topics == 7


class TestShards:
    """Slabs that producers with equal settings are divided among."""

    @staticmethod
    def parse(**given: object) -> ProducerConfig:
        return parse(**KAFKA | given)

    @pytest.mark.parametrize(("cores", "shards"), [(1, 1), (8, 1), (15, 1), (16, 2), (64, 8), (128, 16)])
    def test_auto_is_one_for_every_eight_cores(self, cores: int, shards: int, monkeypatch: MonkeyPatch) -> None:
        monkeypatch.setattr("shmaccum.config.rules.usable_cores", lambda: cores)
        config = self.parse(shmaccum_shards="auto")
        assert config.shmaccum_shards == shards
        assert parse(shmaccum_shards="auto").shmaccum_shards == 1, "transport log has one sender"
        sender = ProducerConfig.from_json(config.in_slab("x" if shards == 1 else "x@0").to_json(0))
        assert sender.shmaccum_shards == shards

    def test_the_memory_is_divided(self) -> None:
        one, four = self.parse(), self.parse(shmaccum_shards=4)
        assert (one.slab_memory, four.slab_memory) == (32 << 20, 8 << 20)
        assert four.batch_max_bytes == 512 << 10
        assert self.parse(shmaccum_shards=40).max_request_size == (32 << 20) // 40

    def test_names(self) -> None:
        alone, named, auto = (
            self.parse(),
            self.parse(shmaccum_shards=2, shmaccum_name="x"),
            self.parse(shmaccum_shards=2),
        )
        assert alone.slab_names(0) == alone.shard_names(0) == [alone.slab_name(0)]
        assert named.slab_names(0) == named.shard_names(0) == ["x@0", "x@1"]
        chosen = named.in_slab("x@1")
        assert (chosen.slab_names(0), chosen.shard_names(0)) == (["x@1"], ["x@0", "x@1"])
        assert auto.slab_names(0) == [f"{auto.slab_name(0)}@{number}" for number in (0, 1)]
        assert auto.slab_name(0) != alone.slab_name(0)
        again = ProducerConfig.from_json(auto.in_slab(auto.slab_names(0)[1]).to_json(0))
        assert again.slab_names(0) == auto.slab_names(0)[1:]
        assert again.slab_digest(0) == auto.in_slab(auto.slab_names(0)[1]).slab_digest(0)


# --- TLS and SASL -------------------------------------------------------------------------------------

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hush";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
KEYTAB = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/k" '
    'principal="me@REALM" serviceName="kafka";'
)
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName="kafka";'


def secured(**given: object) -> ProducerConfig:
    return parse(**KAFKA | given)


def sasl(mechanism: str, **given: object) -> ProducerConfig:
    return secured(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **given)


def refuse_login(message: str, **given: object) -> None:
    assert "hush" not in assert_refused(message, **KAFKA | given)


ALICE = {"sasl_username": "alice", "sasl_password": "hush"}
IN_KEYTAB = {"sasl_kerberos_keytab": "/k", "sasl_kerberos_principal": "me@REALM", "sasl_kerberos_service_name": "kafka"}


class TestJaas:
    @pytest.mark.parametrize(
        ("mechanism", "line", "same"),
        [
            ("PLAIN", PLAIN, ALICE),
            ("SCRAM-SHA-256", SCRAM, ALICE),
            ("SCRAM-SHA-512", SCRAM, ALICE),
            # A delegation token, in the form in which Spark's own sink writes it.
            *[
                (
                    "SCRAM-SHA-512",
                    f'ScramLoginModule required tokenauth={value} serviceName="k" username="alice" password="hush";',
                    ALICE | {"sasl_tokenauth": is_token},
                )
                for value, is_token in (("true", True), ("TRUE", True), ("yes", False))
            ],
            *[("GSSAPI", KEYTAB.replace("/k", f"{prefix}/k"), IN_KEYTAB) for prefix in ("", "FILE:", "file:")],
            # Options that make no difference.
            *[
                ("GSSAPI", KEYTAB.replace(";", f" {options};"), IN_KEYTAB)
                for options in (
                    "debug=true doNotPrompt=true refreshKrb5Config=true",
                    "renewTGT=false isInitiator=TRUE clearPass=no",
                    "useTicketCache=true",
                )
            ],
            # A credential cache.
            ("GSSAPI", KERBEROS, {"sasl_kerberos_service_name": "kafka"}),
            (
                "GSSAPI",
                KERBEROS.replace(";", ' principal="me@REALM";'),
                {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_principal": "me@REALM"},
            ),
            ("OAUTHBEARER", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;", {}),
        ],
    )
    def test_is_the_same_as_other_settings(self, mechanism: str, line: str, same: dict[str, object]) -> None:
        provider = {"sasl_oauthbearer_token_provider": "tokens:fetch"} if mechanism == "OAUTHBEARER" else {}
        config, other = sasl(mechanism, sasl_jaas_config=line, **provider), sasl(mechanism, **same, **provider)

        assert config.as_dict() == other.as_dict()
        assert "hush" not in repr(config)

    def test_needs_no_service_that_a_setting_names(self) -> None:
        config = sasl("GSSAPI", sasl_jaas_config="Krb5LoginModule required;", sasl_kerberos_service_name="k")
        assert config.sasl_kerberos_service_name == "k"

    @pytest.mark.parametrize(
        ("setting", "option"), [("service_name", "serviceName"), ("keytab", "keyTab"), ("principal", "principal")]
    )
    def test_contradicts_no_setting(self, setting: str, option: str) -> None:
        """As in Kafka, of the service's name: said twice in the same way, it is one."""
        line, name = KEYTAB, f"sasl_kerberos_{setting}"
        config = sasl("GSSAPI", sasl_jaas_config=line)
        same = {name: getattr(config, name)}
        assert sasl("GSSAPI", sasl_jaas_config=line, **same).as_dict() == config.as_dict()
        other = rf"{name.replace('_', '.')} = '/other'"
        message = rf"sasl.jaas.config = \[hidden\]: its {option} is not {other}: leave out one of them"
        refuse_login(message, sasl_jaas_config=line, **{name: "/other"})

    @pytest.mark.parametrize(
        ("mechanism", "line", "message"),
        [
            ("SCRAM-SHA-256", PLAIN, "it is for PlainLoginModule, but sasl.mechanism SCRAM-SHA-256 needs ScramLogin.*"),
            ("PLAIN", "x.Hush required hush=hush;", "it is for a login module that Kafka does not have, but .*"),
            ("PLAIN", "hush", "expected <login module> required .*"),
            ("PLAIN", "PlainLoginModule required;", "the login module takes username and password, .*"),
            ("PLAIN", PLAIN.replace(";", " tokenauth=true;"), "the login module takes username and password, .*"),
            ("SCRAM-SHA-256", SCRAM.replace(";", " hush=hush;"), "the login module takes username and password, .*"),
            ("PLAIN", PLAIN.replace('"hush"', '"hush "'), ".* must not begin or end with blanks"),
            ("GSSAPI", KERBEROS.replace(";", " useKeyTab=true;"), "useKeyTab=true needs keyTab and principal: .*"),
            ("GSSAPI", KEYTAB.replace("principal", "storeKey"), "useKeyTab=true needs principal: .*"),
            ("GSSAPI", KERBEROS.replace(";", ' keyTab="/hush";'), "keyTab needs useKeyTab=true"),
            ("GSSAPI", KERBEROS.replace(";", ' ticketCache="/hush";'), "ticketCache: .* set KRB5CCNAME .*"),
            ("GSSAPI", KERBEROS.replace(";", " renewTGT=true;"), "renewTGT=true: .*kinit -R.*"),
            ("GSSAPI", KERBEROS.replace(";", " useFirstPass=true;"), "useFirstPass=true: leave it out: .*"),
            ("GSSAPI", KERBEROS.replace(";", " isInitiator=false;"), "isInitiator=false is for a server: .*"),
            (
                "GSSAPI",
                KERBEROS.replace(";", ' keytab="/hush";'),
                "1 of its options is unknown; Krb5LoginModule has .*keyTab.*",
            ),
            ("OAUTHBEARER", 'OAuthBearerLoginModule required clientSecret="hush";', ".* takes no options here; .*"),
        ],
    )
    def test_is_refused(self, mechanism: str, line: str, message: str) -> None:
        hidden = r"sasl.jaas.config = \[hidden\]: "
        refuse_login(hidden + message, security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=line)

    @pytest.mark.parametrize("other", [{"sasl_username": "alice"}, {"sasl_password": "hush"}])
    def test_excludes_the_other_form(self, other: dict[str, object]) -> None:
        refuse_login(".*: leave out sasl.username and .*", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN, **other)


@pytest.mark.parametrize(
    ("mechanism", "missing"),
    [
        ("PLAIN", "sasl.username and sasl.password are missing"),
        ("SCRAM-SHA-512", "sasl.username and sasl.password are missing"),
        ("OAUTHBEARER", "sasl.oauthbearer.token.provider is missing"),
        ("GSSAPI", "sasl.kerberos.service.name is missing"),
    ],
)
def test_credentials_are_needed_with_sasl(mechanism: str, missing: str) -> None:
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        message = f"{missing}: security.protocol {protocol} with sasl.mechanism {mechanism} needs (it|them)"
        refuse_login(message, security_protocol=protocol, sasl_mechanism=mechanism)
    assert secured(sasl_mechanism=mechanism).security_protocol == "PLAINTEXT"


SASL = {"security_protocol": "SASL_SSL"}
TOKEN = ALICE | {"sasl_tokenauth": True}
KEYSTORE = {"ssl_keystore_certificate_chain": "hush", "ssl_keystore_key": "hush"}
FILES = {"ssl_keystore_location": "a.pem", "ssl_truststore_location": "ca.pem"}
PASSWORDS = {"ssl_keystore_password": "hush", "ssl_truststore_password": "hush"}


@pytest.mark.parametrize("given", [KEYSTORE, FILES, FILES | PASSWORDS])
def test_certificates_are_a_file_or_text(given: dict[str, object]) -> None:
    assert secured(**given)
    assert sasl("SCRAM-SHA-256", **TOKEN, **given).sasl_tokenauth


@pytest.mark.parametrize(
    ("message", "given"),
    [
        (
            "sasl.kerberos.principal is missing: .*",
            SASL | {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_keytab": "/k"},
        ),
        ("sasl.tokenauth = True: .* not by sasl.mechanism PLAIN; .*", SASL | {"sasl_mechanism": "PLAIN"} | TOKEN),
        ("sasl.password is missing: .*", SASL | {"sasl_mechanism": "PLAIN", "sasl_username": "alice"}),
        (r"ssl.keystore.password = \[hidden\]: a PEM file has no .*", FILES | PASSWORDS | {"ssl_keystore_type": "PEM"}),
        (
            r"ssl.truststore.password = \[hidden\]: a PEM file has no .*",
            FILES | PASSWORDS | {"ssl_truststore_type": "PEM"},
        ),
        ("ssl.keystore.location excludes .*", FILES | KEYSTORE),
        (
            "ssl.truststore.location excludes ssl.truststore.certificates: .*",
            FILES | {"ssl_truststore_certificates": "hush"},
        ),
        *[
            ("ssl.keystore.certificate.chain and ssl.keystore.key need each other: .*", {name: "hush"})
            for name in KEYSTORE
        ],
    ],
)
def test_credentials_and_certificates_that_do_not_fit(message: str, given: dict[str, object]) -> None:
    refuse_login(message, **given)
