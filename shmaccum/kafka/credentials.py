"""Turns settings into TLS contexts and SASL mechanisms.

No error of this module shows a secret.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ApiVersionError, ConfigError, SaslAuthenticationError
from shmaccum.kafka.kerberos import Kerberos, check_keytab
from shmaccum.kafka.keystores import KeyStore, read_keystore
from shmaccum.kafka.masking import Mask
from shmaccum.kafka.mechanisms import Mechanism, OAuthBearer, Plain, Scram


def tls_context(config: ProducerConfig) -> ssl.SSLContext | None:
    """Return the TLS context; None if ``security.protocol`` has no TLS.

    Raises:
        ConfigError: a certificate or key cannot be read; names the setting, without secret values.
    """
    if not config.security_protocol.endswith("SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    _trust(context, config)
    _be_known(context, config)
    return context


def _trust(context: ssl.SSLContext, config: ProducerConfig) -> None:
    if config.ssl_truststore_certificates is not None:
        with _naming("ssl.truststore.certificates"):
            context.load_verify_locations(cadata=config.ssl_truststore_certificates.value)
    elif config.ssl_truststore_location:
        path = config.ssl_truststore_location
        with _naming("ssl.truststore.location", path):
            store = _java_store(path, config.ssl_truststore_type, config.ssl_truststore_password)
            if store is None:
                context.load_verify_locations(cafile=path)
            elif store.trusted:
                context.load_verify_locations(cadata=store.trusted)
            else:
                raise ValueError("it holds no trusted certificate")
    else:
        context.load_default_certs()


def _be_known(context: ssl.SSLContext, config: ProducerConfig) -> None:
    # Never None: OpenSSL would ask the terminal for a password.
    password = config.ssl_key_password.value if config.ssl_key_password is not None else ""
    if config.ssl_keystore_location:
        path = config.ssl_keystore_location
        with _naming("ssl.keystore.location", path):
            store = _java_store(path, config.ssl_keystore_type, config.ssl_keystore_password)
            if store is None:
                context.load_cert_chain(path, password=lambda: password)
            else:
                of_key = config.ssl_key_password or config.ssl_keystore_password
                with _unnamed_file(store.identity(of_key.value if of_key is not None else None)) as pem_path:
                    context.load_cert_chain(pem_path)
    elif config.ssl_keystore_certificate_chain is not None and config.ssl_keystore_key is not None:
        pem = f"{config.ssl_keystore_key.value}\n{config.ssl_keystore_certificate_chain.value}\n"
        with _naming("ssl.keystore.certificate.chain and ssl.keystore.key"), _unnamed_file(pem) as path:
            context.load_cert_chain(path, password=lambda: password)


def _java_store(path: str, kind: str, password: Password | None) -> KeyStore | None:
    """Read a Java keystore; return None if the file is PEM.

    Raises:
        OSError, ValueError, ApiVersionError: as `read_keystore`; or the file is not of the type that is set.
    """
    if kind == "PEM":
        return None
    store = read_keystore(path, password.value if password is not None else None)
    if store is None and kind:
        raise ValueError(f"the file is not {kind}")
    if store is None and password is not None:
        raise ValueError("the file is neither JKS nor PKCS#12, and no other type has a store password")
    return store


@contextlib.contextmanager
def _naming(setting: str, path: str = "") -> Iterator[None]:
    """Turn errors into a ConfigError that names the setting; OpenSSL's name nothing."""
    given = f"{setting} = {path!r}" if path else f"{setting} = [hidden]"
    try:
        yield
    except ssl.SSLError as error:
        reason = error.reason or "no PEM certificate, a key that does not match it, or a wrong password of the key"
        raise ConfigError(f"{given}: OpenSSL cannot use it: {reason}") from None
    except OSError as error:
        raise ConfigError(f"{given}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{given}: {error}") from None


@contextlib.contextmanager
def _unnamed_file(text: str) -> Iterator[str]:
    """Yield a path to text that never touches a disk: OpenSSL takes nothing but paths."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


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

    Args:
        config: the settings.
        mask: hides tokens from errors.

    Raises:
        ApiVersionError: GSSAPI needs a library that is not installed.
        ConfigError: ``sasl.oauthbearer.token.provider`` cannot be imported, or is not callable;
            ``sasl.kerberos.keytab`` cannot be read, or is no keytab.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None
    name, username = config.sasl_mechanism, config.sasl_username
    if name == "GSSAPI":
        if find_spec("gssapi") is None:
            raise ApiVersionError("sasl.mechanism GSSAPI needs the package gssapi: pip install 'shmaccum[kerberos]'")
        keytab = config.sasl_kerberos_keytab
        if keytab:
            with _naming("sasl.kerberos.keytab", keytab):
                check_keytab(keytab)
        return partial(
            Kerberos,
            service_name=config.sasl_kerberos_service_name,
            principal=config.sasl_kerberos_principal,
            keytab=keytab,
        )
    if name == "OAUTHBEARER":
        token = _token_getter(_token_function(config), mask)
        return lambda host: OAuthBearer(token)
    assert config.sasl_password is not None  # the configuration requires it
    password = config.sasl_password.value
    if name == "PLAIN":
        return lambda host: Plain(username, password)
    return lambda host: Scram(name, username, password, is_token=config.sasl_tokenauth)


def _token_function(config: ProducerConfig) -> Callable[[], str]:
    name = config.sasl_oauthbearer_token_provider
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"sasl.oauthbearer.token.provider = {name!r}: {error}") from error
    if not callable(function):
        raise ConfigError(f"sasl.oauthbearer.token.provider = {name!r}: not a function that returns a token")
    return function  # type: ignore[no-any-return]
