"""Turns settings into what secures connections: TLS and SASL.

TLS and the mechanisms are imported when the settings name them, since they load OpenSSL. No error of this module shows
a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from shmaccum.config import ProducerConfig
from shmaccum.errors import ApiVersionError, ConfigError, SaslAuthenticationError
from shmaccum.kafka.channel import Address, Channel
from shmaccum.kafka.masking import Mask, naming

if TYPE_CHECKING:
    from shmaccum.kafka.mechanisms import Mechanism


Connect: TypeAlias = Callable[[Address, int, int, str], Channel]
"""Begins to connect to an address, with the sizes of both buffers, and the name that a certificate must have."""


def secure(config: ProducerConfig, mask: Mask) -> tuple[Connect, Callable[[str], Mechanism] | None]:
    """Return how these settings secure connections, and log in (`sasl_mechanism`).

    Raises:
        ApiVersionError: GSSAPI, or a PKCS#12 store, needs a library that is not installed.
        ConfigError: a setting names a file or function that cannot be used; names the setting, without secret values.
    """
    mechanism = sasl_mechanism(config, mask)
    if not config.security_protocol.endswith("SSL"):
        return (lambda address, send, receive, host: Channel(address, send, receive)), mechanism
    from shmaccum.kafka.tls import TlsConnector

    return TlsConnector(config), mechanism


def _token_getter(function: Callable[[], str], mask: Mask) -> Callable[[], str]:
    """Wrap a token provider: the mask hides its tokens, and errors do not show its exceptions' texts."""

    def token() -> str:
        try:
            token = function()
        except Exception as error:
            # Without the exception's text, which can hold the token request with the client's secret.
            raise SaslAuthenticationError(f"sasl.oauthbearer.token.provider raised {type(error).__name__}") from None
        if not isinstance(token, str):
            raise SaslAuthenticationError(
                f"sasl.oauthbearer.token.provider returned a {type(token).__name__}, not a str"
            )
        mask.hide(token)
        return token

    return token


def sasl_mechanism(config: ProducerConfig, mask: Mask) -> Callable[[str], Mechanism] | None:
    """Return a function that makes the mechanism for a login to a host; None without SASL.

    Raises ApiVersionError, ConfigError: as `secure`.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None
    name, username = config.sasl_mechanism, config.sasl_username
    if name == "GSSAPI":
        from importlib.util import find_spec

        from shmaccum.kafka.mechanisms import Kerberos, check_keytab

        if find_spec("gssapi") is None:
            raise ApiVersionError("sasl.mechanism GSSAPI needs the package gssapi: pip install 'shmaccum[kerberos]'")
        keytab = config.sasl_kerberos_keytab
        if keytab:
            with naming("sasl.kerberos.keytab", keytab):
                check_keytab(keytab)
        return partial(
            Kerberos,
            service_name=config.sasl_kerberos_service_name,
            principal=config.sasl_kerberos_principal,
            keytab=keytab,
        )
    from shmaccum.kafka.mechanisms import OAuthBearer, Plain, Scram

    if name == "OAUTHBEARER":
        token = _token_getter(_token_function(config), mask)
        return lambda host: OAuthBearer(token)
    assert config.sasl_password is not None  # the configuration requires it
    password = config.sasl_password.value
    if name == "PLAIN":
        return lambda host: Plain(username, password)
    return lambda host: Scram(name, username, password, is_token=config.sasl_tokenauth)


def _token_function(config: ProducerConfig) -> Callable[[], str]:
    import pkgutil

    name = config.sasl_oauthbearer_token_provider
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"sasl.oauthbearer.token.provider = {name!r}: {error}") from error
    if not callable(function):
        raise ConfigError(f"sasl.oauthbearer.token.provider = {name!r}: not a function that returns a token")
    return function  # type: ignore[no-any-return]
