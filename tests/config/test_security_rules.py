"""What TLS and SASL need, and what excludes what."""

import re

import pytest

from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hush";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
KEYTAB = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="/k" '
    'principal="me@REALM" serviceName="kafka";'
)
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


ALICE = {"sasl_username": "alice", "sasl_password": "hush"}
IN_KEYTAB = {
    "sasl_kerberos_keytab": "/k",
    "sasl_kerberos_principal": "me@REALM",
    "sasl_kerberos_service_name": "kafka",
}


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
        """And names the same slab."""
        provider = {"sasl_oauthbearer_token_provider": "tokens:fetch"} if mechanism == "OAUTHBEARER" else {}
        config, other = sasl(mechanism, sasl_jaas_config=line, **provider), sasl(mechanism, **same, **provider)

        assert config.as_dict() == other.as_dict()
        assert config.slab_digest(7) == other.slab_digest(7)
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
        assert_refused(message, sasl_jaas_config=line, **{name: "/other"})

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
        assert_refused(hidden + message, security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=line)

    @pytest.mark.parametrize("other", [{"sasl_username": "alice"}, {"sasl_password": "hush"}])
    def test_excludes_the_other_form(self, other: dict[str, object]) -> None:
        assert_refused(".*: leave out sasl.username and .*", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN, **other)


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
        assert_refused(message, security_protocol=protocol, sasl_mechanism=mechanism)
    assert parse(sasl_mechanism=mechanism).security_protocol == "PLAINTEXT"


SASL = {"security_protocol": "SASL_SSL"}
TOKEN = ALICE | {"sasl_tokenauth": True}
KEYSTORE = {"ssl_keystore_certificate_chain": "hush", "ssl_keystore_key": "hush"}
FILES = {"ssl_keystore_location": "a.pem", "ssl_truststore_location": "ca.pem"}
PASSWORDS = {"ssl_keystore_password": "hush", "ssl_truststore_password": "hush"}


@pytest.mark.parametrize("given", [KEYSTORE, FILES, FILES | PASSWORDS])
def test_certificates_are_a_file_or_text(given: dict[str, object]) -> None:
    assert parse(**given)
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
    assert_refused(message, **given)
