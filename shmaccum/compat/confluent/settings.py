"""librdkafka's settings as Kafka's: translated where Kafka has the same, refused by name where not.

docs/compat.md has these tables for readers; ``tests/compat/test_settings_tables.py`` compares the two.
"""

from __future__ import annotations

import logging
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shmaccum.compat.common_settings import keystore_settings, servers
from shmaccum.config import ProducerConfig
from shmaccum.config.foreign_settings import LIBRDKAFKAS
from shmaccum.config.rules import MAX_IN_FLIGHT_FOR_IDEMPOTENCE
from shmaccum.errors import ConfigError
from shmaccum.producer.partitioner import partition_for_key

logger = logging.getLogger(__name__)

RENAMED: Final = LIBRDKAFKAS
"""librdkafka's name -> Kafka's."""

_CONVERTED: Final = """
    queue.buffering.max.kbytes queue.buffering.max.messages batch.size socket.timeout.ms compression.level partitioner
    ssl.certificate.location ssl.key.location delivery.report.only.error default.topic.config on_delivery error_cb
    stats_cb statistics.interval.ms
"""

CONVERTED: Final = frozenset(_CONVERTED.split())
"""Settings with a meaning here that no single setting of Kafka has."""

ONLY: Final[Mapping[str, tuple[str, str]]] = {
    "enable.ssl.certificate.verification": ("true", "an untrusted certificate is always rejected"),
    "enable.gapless.guarantee": ("false", "an error of one batch does not stop the producer"),
    "queuing.strategy": ("fifo", "records leave in their order"),
    "allow.auto.create.topics": ("true", "brokers decide whether they create topics"),
    "sasl.oauthbearer.method": ("default", "sasl.oauthbearer.token.provider names a callable that returns a token"),
    "api.version.request": ("true", "brokers are always asked for their versions"),
    "broker.address.family": ("any", "all addresses of a broker's name are tried"),
    "socket.nagle.disable": ("true", "small requests are never delayed"),
}
"""Settings with one value that says what is done anyway -> that value, and why there is no other."""

_WITHOUT_EFFECT: Final = """
    api.version.fallback.ms api.version.request.timeout.ms broker.address.ttl broker.version.fallback debug
    enable.metrics.push enable.random.seed enabled_events internal.termination.signal log.connection.close log.queue
    log.thread.name log_level logger message.copy.max.bytes produce.offset.report receive.message.max.bytes
    reconnect.backoff.jitter.ms socket.blocking.max.ms socket.keepalive.enable topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
"""

WITHOUT_EFFECT: Final = frozenset(_WITHOUT_EFFECT.split())
"""Settings of librdkafka's insides and its log, which change nothing in what is sent: accepted and ignored."""

_OF_CONSUMERS: Final = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs client.rack coordinator.query.interval.ms
    enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id
    group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms isolation.level
    max.partition.fetch.bytes max.poll.interval.ms partition.assignment.strategy queued.max.messages.kbytes
    queued.min.messages session.timeout.ms
"""

OF_CONSUMERS: Final = frozenset(_OF_CONSUMERS.split())
"""Settings of consumers, which librdkafka's producer ignores, too."""

_TOKENS: Final = """
    enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.config sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions
    sasl.oauthbearer.token.endpoint.url
"""

REFUSED: Final[Mapping[str, str]] = {
    "batch.num.messages": "leave it out: batch.size bounds a batch",
    "queue.buffering.backpressure.threshold": "leave it out: max.in.flight.requests.per.connection bounds the requests",
    "sticky.partitioning.linger.ms": "leave it out: the sticky partition changes with each full batch",
    "topic.metadata.propagation.max.ms": "max.block.ms is how long produce waits for a topic",
    "topic.blacklist": "leave it out: no topic can be hidden",
    "socket.max.fails": "leave it out: a connection with a timed out request is closed",
    "throttle_cb": "leave it out: the sender obeys throttling, and no process learns of it",
    "oauth_cb": "sasl.oauthbearer.token.provider names a callable, which the sender process imports",
    "plugin.library.paths": "leave it out: librdkafka's plugins cannot run here",
    "ssl.crl.location": "leave it out: revocation lists are not supported",
    "ssl.cipher.suites": "leave it out: the ciphers are those that OpenSSL is configured for",
    "ssl.curves.list": "leave it out: the curves are those that OpenSSL is configured for",
    "ssl.sigalgs.list": "leave it out: the algorithms are those that OpenSSL is configured for",
    "ssl.providers": "leave it out: the providers are those that OpenSSL is configured for",
    "sasl.kerberos.kinit.cmd": "leave it out: with sasl.kerberos.keytab the sender renews tickets in time",
    "sasl.kerberos.min.time.before.relogin": "leave it out: the sender renews tickets in time",
    **dict.fromkeys(_TOKENS.split(), "sasl.oauthbearer.token.provider names a callable that returns a token"),
}
"""librdkafka's setting -> what to do instead."""

Partitioner = Callable[[bytes | None, int], int | None]
"""Returns the partition for a serialized key and a number of partitions; None where it does not matter."""


def _fnv1a(key: bytes | None, count: int) -> int:
    value = 0x811C9DC5
    for byte in key or b"":
        value = (value ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return min(value, (1 << 32) - value) % count  # of the hash as a signed number, without its sign


_DEFAULT_PARTITIONER: Final = "consistent_random"
"""librdkafka's default. It hashes keys by CRC-32, where Kafka's Java producer and ours use murmur2: a program that
changes its import must not change the partitions of its keys."""

PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    "random": lambda key, count: None,
    "consistent": lambda key, count: zlib.crc32(key or b"") % count,
    "consistent_random": lambda key, count: zlib.crc32(key) % count if key else None,  # an empty key counts as none
    "murmur2": lambda key, count: partition_for_key(key or b"", count),
    "murmur2_random": lambda key, count: None if key is None else partition_for_key(key, count),
    "fnv1a": _fnv1a,
    "fnv1a_random": lambda key, count: None if key is None else _fnv1a(key, count),
}
"""librdkafka's ``partitioner``, by its names. Where librdkafka chooses at random, these return None: our sticky
partitioner chooses, which makes larger batches."""

_BATCH_SIZE: Final = 1_000_000
"""librdkafka's default of ``batch.size``."""
_MOST_MESSAGES: Final = 100_000
"""librdkafka's default of ``queue.buffering.max.messages``."""
_MOST_STATISTICS_MS: Final = 86_400_000
_TOPIC_WAIT_MS: Final = 1000
_TRANSACTIONAL_BLOCK_MS: Final = 60_000
"""In a transaction, a refused record fails the transaction: it had better wait."""
_MOST_GZIP_LEVEL: Final = 9
_FAST_LZ4_LEVEL: Final = 2
"""Up to it LZ4 is fast: our default level."""
_INT_MAX: Final = (1 << 31) - 1
_TRUE: Final = ("true", "t", "1")
_FALSE: Final = ("false", "f", "0")
_NUMBER: Final = re.compile(r"\s*([+-]?(?:0x[0-9a-f]+|[0-9]+))(?:\.[0-9]*)?\s*", re.IGNORECASE)
_OF_INTEGERS: Final = """
    queue.buffering.max.kbytes queue.buffering.max.messages socket.timeout.ms compression.level statistics.interval.ms
"""
_INTEGERS: Final = frozenset(_OF_INTEGERS.split())
"""Settings that only librdkafka has as integers; ``linger.ms`` is none there."""
_WORDS: Final = frozenset({"acks", "client.dns.lookup", "compression.type", "ssl.endpoint.identification.algorithm"})
"""Kafka's settings of words whose case counts, unlike there."""
_OURS: Final = frozenset(ProducerConfig.settings) - {"key.serializer", "value.serializer"}


@dataclass(frozen=True, slots=True)
class Translated:
    """What a program's settings mean here."""

    config: ProducerConfig
    on_delivery: Callable[..., Any] | None
    error_cb: Callable[..., Any] | None
    stats_cb: Callable[..., Any] | None
    statistics_ms: int
    """Milliseconds between two calls of ``stats_cb``; 0 for none."""
    partitioner: Partitioner
    max_messages: int
    """Produced and not reported, at most."""
    only_errors: bool
    """Whether reports of stored messages are dropped."""
    topic_wait_s: float
    """How long ``produce`` waits for a topic's metadata, before it keeps the message in the process."""


def translate(given: Mapping[str, object]) -> Translated:
    """Translate a program's settings.

    Raises ConfigError: a setting is unknown or refused, has a wrong value, or contradicts another.
    """
    of_topics = given.get("default.topic.config")
    merged = {**given, **of_topics} if isinstance(of_topics, Mapping) else {**given}
    merged.pop("default.topic.config", None)
    conf = {name: _read(name, value) for name, value in merged.items() if value is not None}  # None: not given
    on_delivery, error_cb, stats_cb = (_callback(conf, name) for name in ("on_delivery", "error_cb", "stats_cb"))
    statistics_ms = _integer(conf, "statistics.interval.ms", 0)
    if not 0 <= statistics_ms <= _MOST_STATISTICS_MS:
        raise ConfigError(f"statistics.interval.ms = {statistics_ms}: must be from 0, which is off, to a day")
    conf.pop("statistics.interval.ms", None)
    max_messages = _integer(conf, "queue.buffering.max.messages", _MOST_MESSAGES) or _INT_MAX
    if max_messages < 0:
        raise ConfigError(f"queue.buffering.max.messages = {max_messages}: must be at least 0, which is no limit")
    conf.pop("queue.buffering.max.messages", None)
    only_errors = _boolean(conf, "delivery.report.only.error")
    partitioner = _partitioner(conf)
    settings: dict[str, object] = {}
    special: dict[str, object] = {name: conf.pop(name) for name in CONVERTED if name in conf}
    for name, value in conf.items():
        _check(name, value)
        kafkas = RENAMED.get(name, name)
        if kafkas in _OURS:
            settings[kafkas] = value
    _convert(settings, special)
    settings["partitioner.ignore.keys"] = True  # of a key that has a partition, it is given
    settings.setdefault("max.block.ms", _TRANSACTIONAL_BLOCK_MS if settings.get("transactional.id") else 0)
    config = ProducerConfig.parse(settings)
    wait_ms = min(_TOPIC_WAIT_MS, config.delivery_timeout_ms)
    return Translated(
        config,
        on_delivery,
        error_cb,
        stats_cb,
        statistics_ms,
        partitioner,
        max_messages,
        only_errors,
        topic_wait_s=wait_ms / 1000,
    )


def _read(name: str, value: object) -> object:
    """Return a value as librdkafka reads it, which sees only its text; what cannot be read, as it is."""
    kafkas = RENAMED.get(name, name)
    setting = ProducerConfig.settings.get(kafkas)
    kind = "int" if name in _INTEGERS else "" if setting is None else setting.type.name
    if not isinstance(value, str | int | float) or kafkas == "linger.ms":
        return value
    if kind == "boolean":
        truth = _truth(value)
        return value if truth is None else truth
    if kind in ("int", "long"):
        number = _NUMBER.fullmatch(str(value))
        return value if number is None else int(number[1], 16 if "x" in number[1].lower() else 10)
    if kind in ("string", "password"):
        return str(value).strip().lower() if kafkas in _WORDS else str(value)
    return value


def _truth(value: object) -> bool | None:
    """Return a boolean as librdkafka reads it; None if it is none."""
    text = str(value).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _check(name: str, value: object) -> None:
    """Refuse a setting that has no meaning here."""
    if name in RENAMED or name in _OURS:
        return
    if name in WITHOUT_EFFECT or name in OF_CONSUMERS:
        logger.info("Setting %s has no effect here.", name)
    elif name in ONLY:
        allowed, reason = ONLY[name]
        is_allowed = _truth(value) is _truth(allowed) if allowed in ("true", "false") else str(value).lower() == allowed
        if not is_allowed:
            raise ConfigError(f"{name} = {value!r}: only {allowed} is possible: {reason}")
    elif name in REFUSED:
        raise ConfigError(f"{name}: not supported; {REFUSED[name]}")
    else:
        raise ConfigError(f'No such configuration property: "{name}"')


def _convert(settings: dict[str, object], special: Mapping[str, object]) -> None:
    """Add the settings that follow from several of librdkafka's, or have other units or forms there."""
    if "bootstrap.servers" in settings:
        settings["bootstrap.servers"] = servers(settings["bootstrap.servers"])
    if "queue.buffering.max.kbytes" in special:
        settings["buffer.memory"] = _integer(special, "queue.buffering.max.kbytes", 0) * 1024
    size = settings["batch.size"] = _integer(special, "batch.size", _BATCH_SIZE)
    if "batch.size" in special:
        settings.setdefault("batch.max.bytes", size)  # there, a batch has no more, even while its partition waits
    if "linger.ms" in settings:
        settings["linger.ms"] = math.ceil(_float(settings, "linger.ms"))
    for name in ("send.buffer.bytes", "receive.buffer.bytes", "connections.max.idle.ms"):
        if name in settings and _integer(settings, name, 0) == 0:
            settings[name] = -1  # in Kafka, 0 is a size, and a time
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl.endpoint.identification.algorithm"] = ""
    level, codec = _integer(special, "compression.level", -1), str(settings.get("compression.type", "none"))
    if codec == "gzip":
        level = min(level, _MOST_GZIP_LEVEL)
        if level == 0:
            settings["compression.type"] = codec = "none"  # it wraps the bytes, and does not compress them
    if level != -1 and codec in ("gzip", "lz4", "zstd") and not (codec == "lz4" and level <= _FAST_LZ4_LEVEL):
        settings[f"compression.{codec}.level"] = level
    if (
        str(settings.get("sasl.mechanism", "GSSAPI")).upper() == "GSSAPI"
        and "sasl" in str(settings.get("security.protocol", "")).lower()
    ):
        settings.setdefault("sasl.kerberos.service.name", "kafka")
    settings.update(keystore_settings(special, "ssl.certificate.location", "ssl.key.location"))
    in_flight = _integer(settings, "max.in.flight.requests.per.connection", 0)
    if in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE and not settings.get("transactional.id"):
        settings.setdefault("enable.idempotence", False)  # librdkafka's default
    _fit_timeouts(settings, special)


def _fit_timeouts(settings: dict[str, object], special: Mapping[str, object]) -> None:
    """Make a request end with its messages: librdkafka bounds each by the other, Kafka refuses that."""
    if "socket.timeout.ms" in special:
        settings.setdefault("request.timeout.ms", special["socket.timeout.ms"])
    if "delivery.timeout.ms" not in settings:
        return
    total = settings["delivery.timeout.ms"] = _integer(settings, "delivery.timeout.ms", 0) or _INT_MAX
    linger = _integer(settings, "linger.ms", ProducerConfig.settings["linger.ms"].default)
    request = _integer(settings, "request.timeout.ms", ProducerConfig.settings["request.timeout.ms"].default)
    if total < linger + request:
        settings["linger.ms"] = min(linger, total)
        settings["request.timeout.ms"] = max(0, total - min(linger, total))


def _partitioner(conf: dict[str, object]) -> Partitioner:
    name = conf.pop("partitioner", _DEFAULT_PARTITIONER)
    if name not in PARTITIONERS:
        raise ConfigError(
            f'Invalid value for configuration property "partitioner": {name}; one of {", ".join(PARTITIONERS)}'
        )
    return PARTITIONERS[str(name)]


def _callback(conf: dict[str, object], name: str) -> Callable[..., Any] | None:
    value = conf.pop(name, None)
    if value is not None and not callable(value):
        raise TypeError(f"expected {name} property as a callable function")
    return value


def _boolean(conf: dict[str, object], name: str) -> bool:
    value = conf.pop(name, False)
    truth = _truth(value)
    if truth is None:
        raise ConfigError(f'Invalid value for configuration property "{name}": {value}')
    return truth


def _integer(conf: Mapping[str, object], name: str, default: int) -> int:
    return int(_float(conf, name)) if name in conf else default


def _float(conf: Mapping[str, object], name: str) -> float:
    try:
        number = float(str(conf[name]))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f'Invalid value for configuration property "{name}": {conf[name]!r}')
    return number
