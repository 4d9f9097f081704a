"""kafka-python's settings as Kafka's: translated where they mean the same, refused by name where not.

docs/compat.md has these tables for readers; ``tests/compat/test_settings_tables.py`` compares the two.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from kafka.errors import KafkaConfigurationError
from kafka.producer.kafka import KafkaProducer as TheirProducer

from shmaccum.compat.common_settings import keystore_settings, servers
from shmaccum.config import ProducerConfig
from shmaccum.config.rules import MAX_IN_FLIGHT_FOR_IDEMPOTENCE
from shmaccum.errors import ConfigError

logger = logging.getLogger(__name__)

THEIR_DEFAULTS: Final[Mapping[str, Any]] = TheirProducer.DEFAULT_CONFIG

RENAMED: Final[Mapping[str, str]] = {
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_password": "ssl.key.password",
}
"""Theirs -> Kafka's."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "bootstrap_timeout_ms",
        "metrics_num_samples",
        "metrics_sample_window_ms",
        "receive_message_max_bytes",
        "selector",
        "socket_options",
    }
)
"""Settings of kafka-python's connections and metrics, which change nothing in what is sent: accepted and ignored."""

REFUSED: Final[Mapping[str, str]] = {
    "allow_auto_create_topics": "leave it out: brokers decide whether they create topics",
    "kafka_client": "leave it out: the sender process has the connections",
    "metric_reporters": "read metrics() instead, or shmaccum status",
    "proxy_url": "proxies are not supported",
    "socks5_proxy": "proxies are not supported",
    "sasl_kerberos_domain_name": "leave it out: the domain is the broker's name",
    "sasl_kerberos_name": "set sasl_kerberos_service_name",
    "ssl_ciphers": "leave it out: the ciphers are those that OpenSSL is configured for",
    "ssl_context": "no object can travel to the sender process: set ssl_cafile, ssl_certfile and ssl_keyfile",
    "ssl_crlfile": "leave it out: revocation lists are not supported",
}
"""Theirs -> what to do instead. Their default is accepted."""

_INT_MAX: Final = (1 << 31) - 1
_OLDEST: Final = (0, 11)
"""The first version of Kafka with record batches."""


def translate(given: Mapping[str, Any]) -> ProducerConfig:
    """Translate a program's settings, with kafka-python's defaults where those differ from Kafka's.

    Settings of our own are among them by their names with underscores: ``shmaccum_name``, ``buffer_memory``.

    Raises:
        ValueError: there is no such setting.
        KafkaConfigurationError: a setting is refused, has a wrong value, or contradicts another.
    """
    own = {name for name in given if name.replace("_", ".") in ProducerConfig.settings}
    unknown = [name for name in given if name not in THEIR_DEFAULTS and name not in own]
    if unknown:
        raise ValueError(f"Unrecognized configs: {', '.join(unknown)}")  # no values: one can be a password
    for name in given:
        if name in REFUSED and given[name] != THEIR_DEFAULTS[name]:
            raise KafkaConfigurationError(f"{name}: not supported; {REFUSED[name]}")
        if name in WITHOUT_EFFECT:
            logger.info("Setting %s has no effect here.", name)
    settings = {name.replace("_", "."): given[name] for name in own - {"key_serializer", "value_serializer"}}
    settings |= {kafkas: given[name] for name, kafkas in RENAMED.items() if given.get(name) is not None}
    addresses: Any = given.get("bootstrap_servers", THEIR_DEFAULTS["bootstrap_servers"])
    settings["bootstrap.servers"] = servers(addresses if isinstance(addresses, str) else list(addresses))
    settings.setdefault("linger.ms", THEIR_DEFAULTS["linger_ms"])
    try:
        _convert(settings, given)
        return ProducerConfig.parse({name: value for name, value in settings.items() if value is not None})
    except ConfigError as error:
        raise KafkaConfigurationError(str(error)) from error


def _convert(settings: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Add the settings that follow from several of theirs, or have other values there."""
    if settings.get("retries") == math.inf:
        settings["retries"] = _INT_MAX
    for name, value in settings.items():
        if isinstance(value, float) and math.isfinite(value):
            settings[name] = math.ceil(value)
    if "compression.type" in settings and settings["compression.type"] is None:
        settings["compression.type"] = "none"
    for name in ("receive_buffer_bytes", "send_buffer_bytes"):
        if given.get(name) is None:
            settings[name.replace("_", ".")] = -1  # theirs is the system's default, Kafka's is not
    if not given.get("ssl_check_hostname", True):
        settings["ssl.endpoint.identification.algorithm"] = ""
    settings.update(keystore_settings(given, "ssl_certfile", "ssl_keyfile"))
    provider = given.get("sasl_oauth_token_provider")
    if provider is not None:
        if not isinstance(provider, str):
            raise ConfigError(
                "sasl_oauth_token_provider: no object can travel to the sender process: give the dotted name of a "
                "callable that returns a token"
            )
        settings["sasl.oauthbearer.token.provider"] = provider
    if settings.get("sasl.mechanism") == "GSSAPI":
        settings.setdefault("sasl.kerberos.service.name", THEIR_DEFAULTS["sasl_kerberos_service_name"])
    version = given.get("api_version")
    if isinstance(version, tuple) and version < _OLDEST:
        raise ConfigError(f"api_version = {version}: at least {_OLDEST} is needed, which has record batches")
    _resolve_idempotence(settings, given)


def _resolve_idempotence(settings: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Apply KIP-679 as kafka-python does: a conflict turns idempotence off, or is an error if it was asked for."""
    if given.get("transactional_id") and not given.get("enable_idempotence", True):
        raise ConfigError("Cannot set transactional_id without enable_idempotence.")
    in_flight = given.get("max_in_flight_requests_per_connection", 0)
    conflicts = [
        f"{name}={given[name]!r}"
        for name, is_conflict in (
            ("acks", given.get("acks", -1) not in (-1, "all", "-1")),
            ("retries", given.get("retries", 1) == 0),
            ("max_in_flight_requests_per_connection", in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE),
        )
        if is_conflict
    ]
    if not conflicts:
        return
    if given.get("enable_idempotence") or given.get("transactional_id"):
        raise ConfigError(f"enable_idempotence=True is incompatible with user-provided {', '.join(conflicts)}")
    logger.warning("Idempotence is off, because of %s.", ", ".join(conflicts))
    settings["enable.idempotence"] = False
