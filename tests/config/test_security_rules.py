"""What TLS and SASL need, and what excludes what."""

import re

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hush";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName="kafka";'


def parse(**given: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap.servers": "a:1"} | {name.replace("_", "."): v for name, v in given.items()})


def sasl(mechanism: str, **given: object) -> ProducerConfig:
    return parse(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **given)


def assert_refused(message: str, **given: object) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**given)
    assert re.fullmatch(message, str(refused.value)), str(refused.value)
    assert "hush" not in str(refused.value)


class TestJaas:
    @pytest.mark.parametrize(
        ("mechanism", "line"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
    )
    def test_is_the_same_as_username_and_password(self, mechanism: str, line: str) -> None:
        config = sasl(mechanism, sasl_jaas_config=line)
        other = sasl(mechanism, sasl_username="alice", sasl_password="hush")

        assert config.as_dict() == other.as_dict()
        assert config.slab_digest(7) == other.slab_digest(7)
        assert "hush" not in repr(config)

    def test_names_the_service_of_kerberos(self) -> None:
        assert sasl("GSSAPI", sasl_jaas_config=KERBEROS).sasl_kerberos_service_name == "kafka"
        line = "Krb5LoginModule required;"
        assert sasl("GSSAPI", sasl_jaas_config=line, sasl_kerberos_service_name="k").sasl_kerberos_service_name == "k"

    def test_of_oauth_says_nothing(self) -> None:
        provider = "tokens:fetch"
        line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;"
        config = sasl("OAUTHBEARER", sasl_jaas_config=line, sasl_oauthbearer_token_provider=provider)
        assert config.as_dict() == sasl("OAUTHBEARER", sasl_oauthbearer_token_provider=provider).as_dict()

    @pytest.mark.parametrize(
        ("mechanism", "line", "message"),
        [
            ("SCRAM-SHA-256", PLAIN, "it is for PlainLoginModule, but sasl.mechanism SCRAM-SHA-256 needs ScramLogin.*"),
            ("PLAIN", "x.Hush required hush=hush;", "it is for a login module that is none of Kafka's, but .*"),
            ("PLAIN", "hush", "expected <login module> required .*"),
            ("PLAIN", "PlainLoginModule required;", "the login module takes username and password, .*"),
            (
                "SCRAM-SHA-256",
                SCRAM.replace(";", " tokenauth=true;"),
                "the login module takes username and password, .*",
            ),
            ("PLAIN", PLAIN.replace('"hush"', '"hush "'), ".* must not begin or end with blanks"),
            (
                "GSSAPI",
                KERBEROS.replace(";", " useKeyTab=true;"),
                "a keytab is not named here; .* KRB5_CLIENT_KTNAME.*",
            ),
            ("GSSAPI", KERBEROS.replace(";", ' keyTab="/hush";'), "a keytab is not named here; .*"),
            ("OAUTHBEARER", 'OAuthBearerLoginModule required clientSecret="hush";', ".* takes no options here; .*"),
        ],
    )
    def test_is_refused(self, mechanism: str, line: str, message: str) -> None:
        hidden = r"sasl.jaas.config = \[hidden\]: "
        assert_refused(hidden + message, security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=line)

    @pytest.mark.parametrize("other", [{"sasl_username": "alice"}, {"sasl_password": "hush"}])
    def test_excludes_the_other_form(self, other: dict[str, object]) -> None:
        assert_refused(".*: leave out sasl.username and .*", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN, **other)


class TestCredentials:
    @pytest.mark.parametrize(
        ("mechanism", "missing"),
        [
            ("PLAIN", "sasl.username and sasl.password are missing"),
            ("SCRAM-SHA-512", "sasl.username and sasl.password are missing"),
            ("OAUTHBEARER", "sasl.oauthbearer.token.provider is missing"),
            ("GSSAPI", "sasl.kerberos.service.name is missing"),
        ],
    )
    @pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
    def test_are_needed_with_sasl(self, protocol: str, mechanism: str, missing: str) -> None:
        message = f"{missing}: security.protocol {protocol} with sasl.mechanism {mechanism} cannot do without"
        assert_refused(message, security_protocol=protocol, sasl_mechanism=mechanism)
        assert parse(sasl_mechanism=mechanism).security_protocol == "PLAINTEXT"

    def test_are_named_one_by_one(self) -> None:
        message = "sasl.password is missing: .*"
        assert_refused(message, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice")


class TestCertificates:
    @pytest.mark.parametrize("store", ["keystore", "truststore"])
    def test_in_pem_have_no_store_password(self, store: str) -> None:
        given = {f"ssl_{store}_location": "a.pem", f"ssl_{store}_password": "hush"}
        assert parse(**given)
        message = rf"ssl\.{store}\.password = \[hidden\]: a PEM file has no password of its own; .*"
        assert_refused(message, **given, **{f"ssl_{store}_type": "PEM"})

    def test_are_a_file_or_text(self) -> None:
        pair = {"ssl_keystore_certificate_chain": "hush", "ssl_keystore_key": "hush"}
        assert parse(**pair)
        assert parse(ssl_keystore_location="client.pem", ssl_truststore_location="ca.pem")
        assert_refused("ssl.keystore.location excludes .*", ssl_keystore_location="client.pem", **pair)
        both = {"ssl_truststore_location": "ca.pem", "ssl_truststore_certificates": "hush"}
        assert_refused("ssl.truststore.location excludes ssl.truststore.certificates: .*", **both)

    @pytest.mark.parametrize("name", ["ssl_keystore_certificate_chain", "ssl_keystore_key"])
    def test_need_their_key(self, name: str) -> None:
        assert_refused("ssl.keystore.certificate.chain and ssl.keystore.key need each other: .*", **{name: "hush"})
