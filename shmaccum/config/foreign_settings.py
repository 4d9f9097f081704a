"""Settings of other clients that do not exist here, with advice for each.

They are settings of Kafka's producer (``ProducerConfig``, ``SslConfigs``, ``SaslConfigs``) that make no sense without
a JVM or that belong to unsupported features. Settings of its consumer are here because many files hold both. The
others are librdkafka's names for settings that have Kafka's names here.
"""

from __future__ import annotations

from typing import Final

_GROUPS: Final = {
    "leave it out: read metrics with Producer.metrics() and shmaccum status": """
        enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    """,
    "leave it out: it configures Java's TLS and SASL libraries, which are not used here": """
        security.providers ssl.provider ssl.engine.factory.class ssl.keymanager.algorithm ssl.trustmanager.algorithm
        ssl.secure.random.implementation sasl.client.callback.handler.class sasl.login.class
    """,
    "leave it out: TLS 1.2 and 1.3 are used, with the ciphers that OpenSSL is configured for": """
        ssl.protocol ssl.enabled.protocols ssl.cipher.suites
    """,
    (
        "leave it out: with sasl.kerberos.keytab the sender renews tickets in time; kinit, k5start or sssd keeps a "
        "credential cache fresh"
    ): """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
    """,
    (
        "Kafka's setting is not supported here; leave it out: tokens come from the callable that "
        "sasl.oauthbearer.token.provider names"
    ): """
        sasl.login.callback.handler.class sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.scope sasl.oauthbearer.header.urlencode
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    "Kafka's setting is not supported here; leave it out: the brokers check tokens, and clients do not": """
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class
    """,
    "leave it out: it is a setting of other clients than producers": """
        allow.auto.create.topics auto.commit.interval.ms bootstrap.controllers check.crcs client.rack
        default.api.timeout.ms exclude.internal.topics group.protocol group.remote.assignor
        partition.assignment.strategy rebalance.timeout.ms share.acknowledgement.mode share.acquire.mode
    """,
    "leave it out: it is a setting of consumers": """
        auto.offset.reset enable.auto.commit fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
        group.instance.id heartbeat.interval.ms isolation.level key.deserializer max.partition.fetch.bytes
        max.poll.interval.ms max.poll.records session.timeout.ms value.deserializer
    """,
}
"""Advice -> the settings that it is for."""

LIBRDKAFKAS: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's name for a setting -> Kafka's."""

ELSEWHERE: Final = {name: advice for advice, names in _GROUPS.items() for name in names.split()} | {
    "transaction.two.phase.commit.enable": (
        "two-phase commit (KIP-939) is not supported; transactions are (transactional.id)"
    ),
    "config.providers": "leave it out, and give the values themselves: references such as ${file:...} stay as they are",
    "partitioner.class": "pass the partition to send, or add a column partition; partitioner.ignore.keys can be enough",
    **{theirs: f"librdkafka's name for {ours}" for theirs, ours in LIBRDKAFKAS.items()},
    "queue.buffering.max.kbytes": "librdkafka's buffer.memory, which is in bytes",
    "queue.buffering.max.messages": "leave it out: buffer.memory bounds what is buffered",
    "batch.num.messages": "leave it out: batch.size bounds a batch",
    "ssl.certificate.location": "put the certificate and its key into one PEM file: ssl.keystore.location",
    "ssl.key.location": "put the certificate and its key into one PEM file: ssl.keystore.location",
    "enable.ssl.certificate.verification": "leave it out: an untrusted certificate is always rejected",
}
"""Setting -> completes "no such setting; ..."."""
