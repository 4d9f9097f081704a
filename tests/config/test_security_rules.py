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

    @pytest.mark.parametrize("prefix", ["", "FILE:", "file:"])
    def test_names_a_keytab(self, prefix: str) -> None:
        """The same slab as by the settings of the same meaning."""
        config = sasl("GSSAPI", sasl_jaas_config=KEYTAB.replace("/k", f"{prefix}/k"))
        other = sasl(
            "GSSAPI", sasl_kerberos_keytab="/k", sasl_kerberos_principal="me@REALM", sasl_kerberos_service_name="kafka"
        )
        assert config.as_dict() == other.as_dict()
        assert config.slab_digest(7) == other.slab_digest(7)

    @pytest.mark.parametrize(
        "options",
        [
            "debug=true doNotPrompt=true refreshKrb5Config=true",
            "renewTGT=false isInitiator=TRUE clearPass=no",
            "useTicketCache=true",
        ],
    )
    def test_has_options_that_make_no_difference(self, options: str) -> None:
        config = sasl("GSSAPI", sasl_jaas_config=KEYTAB.replace(";", f" {options};"))
        assert config.as_dict() == sasl("GSSAPI", sasl_jaas_config=KEYTAB).as_dict()

    def test_chooses_a_credential_cache(self) -> None:
        config = sasl("GSSAPI", sasl_jaas_config=KERBEROS.replace(";", ' principal="me@REALM";'))
        assert (config.sasl_kerberos_principal, config.sasl_kerberos_keytab) == ("me@REALM", "")

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

    @pytest.mark.parametrize(("value", "is_token"), [("true", True), ("TRUE", True), ("yes", False)])
    def test_has_a_delegation_token(self, value: str, is_token: bool) -> None:
        """Also in the form in which Spark's own sink writes it."""
        line = f'ScramLoginModule required tokenauth={value} serviceName="kafka" username="alice" password="hush";'
        config = sasl("SCRAM-SHA-512", sasl_jaas_config=line)
        other = sasl("SCRAM-SHA-512", sasl_username="alice", sasl_password="hush", sasl_tokenauth=is_token)
        assert config.as_dict() == other.as_dict()
        assert config.slab_digest(7) == other.slab_digest(7)

    def test_of_oauth_says_nothing(self) -> None:
        provider = "tokens:fetch"
        line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;"
        config = sasl("OAUTHBEARER", sasl_jaas_config=line, sasl_oauthbearer_token_provider=provider)
        assert config.as_dict() == sasl("OAUTHBEARER", sasl_oauthbearer_token_provider=provider).as_dict()

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


TOKEN = {"sasl_username": "alice", "sasl_password": "hush", "sasl_tokenauth": True}
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
            {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka", "sasl_kerberos_keytab": "/k"},
        ),
        ("sasl.tokenauth = True: .* not by sasl.mechanism PLAIN; .*", {"sasl_mechanism": "PLAIN"} | TOKEN),
        ("sasl.password is missing: .*", {"sasl_mechanism": "PLAIN", "sasl_username": "alice"}),
    ],
)
def test_credentials_that_do_not_fit(message: str, given: dict[str, object]) -> None:
    assert_refused(message, security_protocol="SASL_SSL", **given)


@pytest.mark.parametrize(
    ("message", "given"),
    [
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
def test_certificates_that_do_not_fit(message: str, given: dict[str, object]) -> None:
    assert_refused(message, **given)
