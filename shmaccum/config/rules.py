"""Rules between settings: which contradict each other, and which follow from others.

A rule runs once each setting is valid alone. As in Kafka, a rule refuses a value that the user gave and that cannot be
kept. It adjusts a default to the other settings, and logs that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from shmaccum._core import COMMIT_COUNT_MASK, MAX_SLOTS, WORD
from shmaccum.abi import shard_of
from shmaccum.config.settings import LEAST_SLOT
from shmaccum.config.valuetypes import AUTO, INT_MAX
from shmaccum.errors import ConfigError
from shmaccum.procfs import usable_cores

if TYPE_CHECKING:
    from shmaccum.config.settings import ProducerSettings

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT_FOR_IDEMPOTENCE: Final = 5
"""``ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE``: how many batches a broker remembers."""

MAX_TRANSACTIONAL_ID: Final = 256
"""``shm.layout.MAX_TRANSACTIONAL_ID``."""
SMALLEST_RECORD: Final = 7
"""Bytes of a record of message format 2 with neither key nor value: the smallest of all formats."""
CORES_OF_A_SHARD: Final = 8
"""Cores for each shard of ``shmaccum.shards`` auto: docs/performance.md has the model that this comes from."""
SLOT_SIZE: Final = 16384
"""Bytes of a slot by default: what a batch with one small record takes. It is Kafka's default of ``batch.size``."""
BATCHES_IN_MEMORY: Final = 16
"""Grown batches that ``buffer.memory`` holds at least, by default."""
LARGEST_BATCH: Final = SMALLEST_RECORD * COMMIT_COUNT_MASK

Changes = Mapping[str, object] | None
"""Settings that a rule changes; None if it only checks."""


def acks_have_one_spelling(config: ProducerSettings) -> Changes:
    """Replace ``-1`` by its other spelling ``all``, so that equal settings compare equal."""
    return {"acks": "all"} if config.acks == "-1" else None


def idempotence_is_possible(config: ProducerSettings) -> Changes:
    """Apply ``ProducerConfig.postProcessAndValidateIdempotenceConfigs``, and check the message format."""
    if not config.enable_idempotence:
        return None
    in_flight = config.max_in_flight_requests_per_connection
    if in_flight > MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        # Kafka 4 no longer turns idempotence off in this case, not even if it is only the default.
        raise ConfigError(
            f"max.in.flight.requests.per.connection = {in_flight}: idempotence allows at most "
            f"{MAX_IN_FLIGHT_FOR_IDEMPOTENCE}; lower it or set enable.idempotence to false"
        )
    obstacles = []
    if config.retries == 0:
        obstacles.append("retries = 0")
    if config.acks != "all":
        obstacles.append(f"acks = {config.acks}")
    if not config.has_record_batches:
        obstacles.append(f"message.format.version = {config.message_format_version}")
    if not obstacles:
        return None
    if "enable.idempotence" in config.explicit:
        raise ConfigError(
            f"enable.idempotence = True: not possible with {' and '.join(obstacles)}; it needs retries above 0, "
            "acks all and message.format.version 0.11 or later"
        )
    logger.info("Turned idempotence off: not possible with %s.", " and ".join(obstacles))
    return {"enable.idempotence": False}


def transactions_are_possible(config: ProducerSettings) -> None:
    """Apply ``ProducerConfig.postProcessAndValidateIdempotenceConfigs`` for transactions, and check their id."""
    if not config.transactional_id:
        return
    what = f"transactional.id = {config.transactional_id!r}: "
    if not config.enable_idempotence:
        raise ConfigError(f"{what}transactions need enable.idempotence true, acks all and retries above 0")
    if config.transport != "kafka":
        raise ConfigError(f"{what}transactions need transport kafka, not {config.transport}")
    size = len(config.transactional_id.encode())
    if size > MAX_TRANSACTIONAL_ID:
        raise ConfigError(f"{what}it takes {size} bytes, and at most {MAX_TRANSACTIONAL_ID} fit")


def delivery_covers_one_request(config: ProducerSettings) -> Changes:
    """Apply ``KafkaProducer.configureDeliveryTimeout``."""
    needed = min(config.linger_ms + config.request_timeout_ms, INT_MAX)
    if config.delivery_timeout_ms >= needed:
        return None
    if "delivery.timeout.ms" in config.explicit:
        raise ConfigError(
            f"delivery.timeout.ms = {config.delivery_timeout_ms}: must be at least linger.ms + request.timeout.ms, "
            f"which is {needed}"
        )
    logger.warning("Raised delivery.timeout.ms to %d, which is linger.ms + request.timeout.ms.", needed)
    return {"delivery.timeout.ms": needed}


def shards_are_possible(config: ProducerSettings) -> Changes:
    """Replace ``auto`` by its number, and check that the transport and the slab's name go with it."""
    shards = config.shmaccum_shards
    if shards == AUTO:
        shards = max(1, usable_cores() // CORES_OF_A_SHARD) if config.transport == "kafka" else 1
    if shards > 1 and config.transport != "kafka":
        raise ConfigError(f"shmaccum.shards = {shards}: transport {config.transport} has one sender; set 1")
    _, number = shard_of(config.shmaccum_name)
    if number is not None and number >= shards:
        raise ConfigError(
            f"shmaccum.name = {config.shmaccum_name!r}: shard {number} of {shards}, which are numbered from 0; raise "
            "shmaccum.shards, or leave the number out"
        )
    return {"shmaccum.shards": shards}


def slots_fit_memory(config: ProducerSettings) -> Changes:
    """Choose the size of slots, and check that the slab has room for one."""
    size = config.shmaccum_slot_size
    if size == AUTO:
        size = SLOT_SIZE if config.has_record_batches else config.batch_size
        size = max(LEAST_SLOT, min(size, config.slab_memory))
    if size > config.slab_memory:
        raise ConfigError(f"shmaccum.slot.size = {size}: must be at most {_memory(config)}")
    return {"shmaccum.slot.size": size // WORD * WORD}


def _memory(config: ProducerSettings) -> str:
    """Return the settings that bound a slab's memory, for a message."""
    divided = f" divided by {config.shmaccum_shards} shards" if config.shmaccum_shards > 1 else ""
    return f"buffer.memory{divided}, which is {config.slab_memory}"


def slots_fit_layout(config: ProducerSettings) -> None:
    """Check that the slab's words can count the slots, and the records of a batch."""
    if config.batch_size > LARGEST_BATCH:
        raise ConfigError(
            f"batch.size = {config.batch_size}: must be at most {LARGEST_BATCH}; the slab counts at most "
            f"{COMMIT_COUNT_MASK} records in a batch, and the smallest record takes {SMALLEST_RECORD} bytes"
        )
    if config.slab_memory // config.shmaccum_slot_size > MAX_SLOTS:
        most = MAX_SLOTS * config.shmaccum_slot_size * config.shmaccum_shards
        raise ConfigError(
            f"buffer.memory = {config.buffer_memory}: must be at most {most} with shmaccum.slot.size "
            f"{config.shmaccum_slot_size}; a slab has at most {MAX_SLOTS} slots: lower it, or raise shmaccum.slot.size"
        )


def request_fits_memory(config: ProducerSettings) -> Changes:
    """Check that memory can hold every record that ``max.request.size`` allows."""
    if config.max_request_size <= config.slab_memory:
        return None
    if "max.request.size" in config.explicit:
        raise ConfigError(
            f"max.request.size = {config.max_request_size}: must be at most {_memory(config)}; a record of that size "
            "could never be accepted"
        )
    logger.info("Lowered max.request.size: must be at most %s.", _memory(config))
    return {"max.request.size": config.slab_memory}


def format_has_compression(config: ProducerSettings) -> None:
    """Check that the format has zstd: KIP-110 added it to record batches only, not to the formats before them."""
    if config.compression_type == "zstd" and not config.has_record_batches:
        raise ConfigError(
            f"compression.type = zstd: message.format.version {config.message_format_version} does not support it; "
            "use 0.11 or later, or another compression"
        )


def reconnect_backoff_is_constant(config: ProducerSettings) -> Changes:
    """``CommonClientConfigs.postProcessReconnectBackoffConfigs``: the first wait, given alone, sets the maximum too."""
    if "reconnect.backoff.ms" not in config.explicit or "reconnect.backoff.max.ms" in config.explicit:
        return None
    return {"reconnect.backoff.max.ms": config.reconnect_backoff_ms}


def kafka_has_brokers(config: ProducerSettings) -> None:
    """Check that transport kafka has brokers to discover the cluster from."""
    if config.transport != "kafka" or config.bootstrap_servers:
        return
    advice = "; to write to log.dir, set transport to log" if config.log_dir else ""
    raise ConfigError(
        f"bootstrap.servers is missing: transport kafka needs brokers to begin with, as host:port,...{advice}"
    )


def kafka_has_record_batches(config: ProducerSettings) -> None:
    """Check that the format is one that brokers of Kafka 4 accept: record batches or later (KIP-896)."""
    if config.transport == "kafka" and not config.has_record_batches:
        raise ConfigError(
            f"message.format.version = {config.message_format_version}: transport kafka sends record batches, which "
            "came with 0.11; leave it out, or set transport to log"
        )


def log_has_directory(config: ProducerSettings) -> None:
    """Check that transport log has a directory: there is no sensible default."""
    if config.transport == "log" and not config.log_dir:
        raise ConfigError("log.dir is missing: transport log needs a directory to write to")


def batch_fits_segment(config: ProducerSettings) -> None:
    """Check that a segment can hold a full batch, and one that fills its slot."""
    sizes = {"batch.size": config.batch_size, "shmaccum.slot.size": config.shmaccum_slot_size}
    largest = max(sizes, key=sizes.__getitem__)
    if config.segment_bytes < sizes[largest]:
        raise ConfigError(
            f"segment.bytes = {config.segment_bytes}: must be at least {largest}, which is {sizes[largest]}; the log "
            "would refuse a full batch"
        )


def batches_grow_within_requests(config: ProducerSettings) -> Changes:
    """Limit the growth of batches to what a request, and a segment of transport log, can hold.

    By default also to a part of the memory: a batch gives all of its memory back at once.
    """
    limits = {"max.request.size": config.max_request_size}
    if config.transport == "log":
        limits["segment.bytes"] = config.segment_bytes
    limiting = min(limits, key=limits.__getitem__)
    if config.batch_max_bytes == AUTO:
        grown = min(limits[limiting], config.slab_memory // BATCHES_IN_MEMORY)
        return {"batch.max.bytes": max(config.batch_size, grown)}
    if config.batch_max_bytes > max(config.batch_size, limits[limiting]):
        raise ConfigError(
            f"batch.max.bytes = {config.batch_max_bytes}: must be at most {limiting}, which is {limits[limiting]}; a "
            "batch of that size would be refused"
        )
    return None


def tables_follow_memory(config: ProducerSettings) -> Changes:
    """Size the tables in proportion to the memory for batches, unless the user gave a size."""
    changes: dict[str, object] = {}
    if config.shmaccum_max_topics == AUTO:
        changes["shmaccum.max.topics"] = min(max(config.slab_memory // 3072, 512), 100_000)
    if config.shmaccum_max_partitions == AUTO:
        changes["shmaccum.max.partitions"] = min(max(config.slab_memory // 1024, 4096), 200_000)
    return changes


def topic_fits_table(config: ProducerSettings) -> None:
    """Check that the slab has room for at least one topic."""
    if config.num_partitions > config.shmaccum_max_partitions:
        raise ConfigError(
            f"num.partitions = {config.num_partitions}: must be at most shmaccum.max.partitions, which is "
            f"{config.shmaccum_max_partitions}; the slab would not have room for a single topic"
        )


def jaas_is_spelled_out(config: ProducerSettings) -> Changes:
    """Replace ``sasl.jaas.config`` by the equivalent settings: equal credentials compare equal in either form."""
    if config.sasl_jaas_config is None:
        return None
    from shmaccum.config.jaas import settings_of

    return settings_of(config, config.sasl_jaas_config.value)


def sasl_has_credentials(config: ProducerSettings) -> None:
    """Check that the mechanism has what it needs, if SASL is on."""
    if not config.security_protocol.startswith("SASL_") or config.sasl_jaas_config is not None:
        return  # a sasl.jaas.config that is still there has already been refused
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


def pem_has_no_store_password(config: ProducerSettings) -> None:
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


def certificates_are_given_once(config: ProducerSettings) -> None:
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


RULES: Final[tuple[Callable[[ProducerSettings], Changes], ...]] = (
    acks_have_one_spelling,
    idempotence_is_possible,
    transactions_are_possible,
    delivery_covers_one_request,
    shards_are_possible,
    slots_fit_memory,
    slots_fit_layout,
    request_fits_memory,
    format_has_compression,
    reconnect_backoff_is_constant,
    kafka_has_brokers,
    kafka_has_record_batches,
    log_has_directory,
    batch_fits_segment,
    batches_grow_within_requests,
    tables_follow_memory,
    topic_fits_table,
    jaas_is_spelled_out,
    sasl_has_credentials,
    pem_has_no_store_password,
    certificates_are_given_once,
)
"""In this order: a rule sees the changes of those before it."""
