"""Settings of other clients that do not exist here, with advice for each.

They are settings of Kafka's producer (``ProducerConfig``, ``SslConfigs``, ``SaslConfigs``) that make no sense without
a JVM or that belong to unsupported features. Settings of its consumer are here because many files hold both. The
others are librdkafka's names for settings that have Kafka's names here.
"""

from __future__ import annotations

from typing import Final

_TWO_PHASES: Final = "two-phase commit (KIP-939) is not supported; transactions are (transactional.id)"
_METRICS: Final = "leave it out: read metrics with Producer.metrics() and shmaccum status"
_JAVA_ONLY: Final = "leave it out: it configures Java's TLS and SASL libraries, which are not used here"
_TLS_VERSIONS: Final = "leave it out: TLS 1.2 and 1.3 are used, with the ciphers that OpenSSL is configured for"
_TICKET: Final = (
    "leave it out: with sasl.kerberos.keytab the sender renews tickets in time; kinit, k5start or sssd keeps a "
    "credential cache fresh"
)
_TOKEN: Final = "leave it out: tokens come from the callable that sasl.oauthbearer.token.provider names"
_CONSUMER: Final = "leave it out: it is a setting of consumers"

ELSEWHERE: Final = {
    "transaction.two.phase.commit.enable": _TWO_PHASES,
    "partitioner.class": "pass the partition to send, or add a column partition; partitioner.ignore.keys can be enough",
    "enable.metrics.push": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "security.providers": _JAVA_ONLY,
    "ssl.provider": _JAVA_ONLY,
    "ssl.engine.factory.class": _JAVA_ONLY,
    "ssl.keymanager.algorithm": _JAVA_ONLY,
    "ssl.trustmanager.algorithm": _JAVA_ONLY,
    "ssl.secure.random.implementation": _JAVA_ONLY,
    "ssl.protocol": _TLS_VERSIONS,
    "ssl.enabled.protocols": _TLS_VERSIONS,
    "ssl.cipher.suites": _TLS_VERSIONS,
    "sasl.client.callback.handler.class": _JAVA_ONLY,
    "sasl.login.class": _JAVA_ONLY,
    "sasl.login.callback.handler.class": _TOKEN,
    "sasl.oauthbearer.token.endpoint.url": _TOKEN,
    "sasl.oauthbearer.scope.claim.name": _TOKEN,
    "sasl.oauthbearer.sub.claim.name": _TOKEN,
    "sasl.login.connect.timeout.ms": _TOKEN,
    "sasl.login.read.timeout.ms": _TOKEN,
    "sasl.login.retry.backoff.ms": _TOKEN,
    "sasl.login.retry.backoff.max.ms": _TOKEN,
    "sasl.login.refresh.buffer.seconds": _TOKEN,
    "sasl.login.refresh.min.period.seconds": _TOKEN,
    "sasl.login.refresh.window.factor": _TOKEN,
    "sasl.login.refresh.window.jitter": _TOKEN,
    "sasl.kerberos.kinit.cmd": _TICKET,
    "sasl.kerberos.min.time.before.relogin": _TICKET,
    "sasl.kerberos.ticket.renew.jitter": _TICKET,
    "sasl.kerberos.ticket.renew.window.factor": _TICKET,
    "auto.offset.reset": _CONSUMER,
    "enable.auto.commit": _CONSUMER,
    "fetch.max.bytes": _CONSUMER,
    "fetch.max.wait.ms": _CONSUMER,
    "fetch.min.bytes": _CONSUMER,
    "group.id": _CONSUMER,
    "group.instance.id": _CONSUMER,
    "heartbeat.interval.ms": _CONSUMER,
    "isolation.level": _CONSUMER,
    "key.deserializer": _CONSUMER,
    "max.partition.fetch.bytes": _CONSUMER,
    "max.poll.interval.ms": _CONSUMER,
    "max.poll.records": _CONSUMER,
    "session.timeout.ms": _CONSUMER,
    "value.deserializer": _CONSUMER,
    "metadata.broker.list": "librdkafka's name for bootstrap.servers",
    "request.required.acks": "librdkafka's name for acks",
    "compression.codec": "librdkafka's name for compression.type",
    "message.send.max.retries": "librdkafka's name for retries",
    "message.timeout.ms": "librdkafka's name for delivery.timeout.ms",
    "message.max.bytes": "librdkafka's name for max.request.size",
    "queue.buffering.max.ms": "librdkafka's name for linger.ms",
    "queue.buffering.max.kbytes": "librdkafka's buffer.memory, which is in bytes",
    "queue.buffering.max.messages": "leave it out: buffer.memory bounds what is buffered",
    "batch.num.messages": "leave it out: batch.size bounds a batch",
    "max.in.flight": "librdkafka's name for max.in.flight.requests.per.connection",
    "sasl.mechanisms": "librdkafka's name for sasl.mechanism",
    "ssl.ca.location": "librdkafka's name for ssl.truststore.location",
    "ssl.ca.pem": "librdkafka's name for ssl.truststore.certificates",
    "ssl.certificate.location": "put the certificate and its key into one PEM file: ssl.keystore.location",
    "ssl.key.location": "put the certificate and its key into one PEM file: ssl.keystore.location",
    "ssl.certificate.pem": "librdkafka's name for ssl.keystore.certificate.chain",
    "ssl.key.pem": "librdkafka's name for ssl.keystore.key",
    "enable.ssl.certificate.verification": "leave it out: an untrusted certificate is always rejected",
}
"""Setting -> completes "no such setting; ..."."""
