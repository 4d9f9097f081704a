"""Rules for TLS and SASL: what each needs, and which settings exclude each other.

The credentials of a ``sasl.jaas.config`` become the equivalent settings, so that the same
credentials compare equal in whichever form they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from shmaccum.config.rules import KEEP, Changes
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

if TYPE_CHECKING:
    from shmaccum.config.settings import ProducerSettings

_LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}


def jaas_is_spelled_out(config: ProducerSettings) -> Changes:
    """Replace ``sasl.jaas.config`` by the equivalent settings."""
    if config.sasl_jaas_config is None:
        return KEEP
    from shmaccum.config.jaas import parse_jaas
    from shmaccum.config.krb5loginmodule import kerberos_settings

    try:
        module, options = parse_jaas(config.sasl_jaas_config.value)
    except ValueError as error:
        raise ConfigError(f"sasl.jaas.config = [hidden]: {error}") from None
    expected = _LOGIN_MODULES[config.sasl_mechanism]
    if module != expected:
        known = module if module in _LOGIN_MODULES.values() else "a login module that Kafka does not have"
        raise ConfigError(
            f"sasl.jaas.config = [hidden]: it is for {known}, but sasl.mechanism {config.sasl_mechanism} needs "
            f"{expected}"
        )
    spelled_out = {"sasl.jaas.config": None}
    if module in ("PlainLoginModule", "ScramLoginModule"):
        return spelled_out | _username_and_password(config, module, options)
    if module == "Krb5LoginModule":
        return spelled_out | kerberos_settings(config, options)
    if options:
        raise ConfigError(
            "sasl.jaas.config = [hidden]: OAuthBearerLoginModule takes no options here; set "
            "sasl.oauthbearer.token.provider to a callable that returns tokens"
        )
    return spelled_out


def _username_and_password(config: ProducerSettings, module: str, options: Mapping[str, str]) -> dict[str, object]:
    if config.sasl_username or config.sasl_password is not None:
        raise ConfigError("sasl.jaas.config = [hidden]: leave out sasl.username and sasl.password, or leave out this")
    # Spark writes serviceName into the line of every module; Kafka ignores it.
    optional = {"serviceName"} if module == "PlainLoginModule" else {"serviceName", "tokenauth"}
    if set(options) - optional != {"username", "password"}:
        raise ConfigError(
            "sasl.jaas.config = [hidden]: the login module takes username and password, ScramLoginModule also "
            "tokenauth, and nothing else"
        )
    if any(value != value.strip() for value in options.values()):
        raise ConfigError("sasl.jaas.config = [hidden]: username and password must not begin or end with blanks")
    settings = {"sasl.username": options["username"], "sasl.password": Password(options["password"])}
    if "tokenauth" in options:
        settings["sasl.tokenauth"] = options["tokenauth"].lower() == "true"
    return settings


def sasl_has_credentials(config: ProducerSettings) -> Changes:
    """Check that the mechanism has what it needs, if SASL is on."""
    if not config.security_protocol.startswith("SASL_") or config.sasl_jaas_config is not None:
        return KEEP  # a sasl.jaas.config that is still there has already been refused
    mechanism = config.sasl_mechanism
    if mechanism == "GSSAPI":
        if config.sasl_username or config.sasl_password is not None:
            raise ConfigError(
                "sasl.mechanism = 'GSSAPI', which is the default: Kerberos does not use sasl.username and "
                "sasl.password; set sasl.mechanism to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or leave those two out"
            )
        needed: dict[str, object] = {"sasl.kerberos.service.name": config.sasl_kerberos_service_name}
        if config.sasl_kerberos_keytab:
            needed["sasl.kerberos.principal"] = config.sasl_kerberos_principal
    elif mechanism == "OAUTHBEARER":
        needed = {"sasl.oauthbearer.token.provider": config.sasl_oauthbearer_token_provider}
    else:
        password = config.sasl_password.value if config.sasl_password is not None else ""
        needed = {"sasl.username": config.sasl_username, "sasl.password": password}
    if config.sasl_tokenauth and not mechanism.startswith("SCRAM-"):
        raise ConfigError(
            f"sasl.tokenauth = True: a delegation token logs in by SCRAM, not by sasl.mechanism {mechanism}; set that "
            "to SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    missing = [name for name, value in needed.items() if not value]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"{' and '.join(missing)} {verb} missing: security.protocol {config.security_protocol} with "
            f"sasl.mechanism {mechanism} needs {'it' if len(missing) == 1 else 'them'}"
        )
    return KEEP


def pem_has_no_store_password(config: ProducerSettings) -> Changes:
    """Refuse a store password for PEM, as Kafka does: another file or another type must be meant."""
    kind = type(config)
    for type_of, password in (
        (kind.ssl_keystore_type, kind.ssl_keystore_password),
        (kind.ssl_truststore_type, kind.ssl_truststore_password),
    ):
        if config[type_of.name] == "PEM" and config[password.name] is not None:
            raise ConfigError(
                f"{password.name} = [hidden]: a PEM file has no password; ssl.key.password is that of the "
                f"key in it. Leave it out, or set {type_of.name} to JKS or PKCS12"
            )
    return KEEP


def certificates_are_given_once(config: ProducerSettings) -> Changes:
    """Check KIP-651: a store is a file or text, and a certificate comes with its key."""
    chain, key = config.ssl_keystore_certificate_chain, config.ssl_keystore_key
    if config.ssl_keystore_location and (chain is not None or key is not None):
        raise ConfigError(
            "ssl.keystore.location excludes ssl.keystore.certificate.chain and ssl.keystore.key: leave out the file "
            "or the others"
        )
    if (chain is None) != (key is None):
        raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key need each other: give both or neither")
    if config.ssl_truststore_location and config.ssl_truststore_certificates is not None:
        raise ConfigError("ssl.truststore.location excludes ssl.truststore.certificates: leave out one of them")
    return KEEP


SECURITY_RULES: Final[tuple[Callable[[ProducerSettings], Changes], ...]] = (
    jaas_is_spelled_out,
    sasl_has_credentials,
    pem_has_no_store_password,
    certificates_are_given_once,
)
"""In this order: a rule sees the changes of those before it."""
