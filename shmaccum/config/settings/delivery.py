"""Settings of delivery: requests, retries, acknowledgements, metadata."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import at_least, between, one_of
from shmaccum.config.valuetypes import BOOLEAN, INT, INT_MAX, LONG, STRING, STRING_OR_NUMBER


class DeliverySettings(Config, group=Group.DELIVERY):
    """Kafka's settings of the Sender (``ProducerConfig``)."""

    __slots__ = ()

    retries = Setting(
        INT,
        INT_MAX,
        between(0, INT_MAX),
        importance=Importance.HIGH,
        scope=Scope.PRODUCER,
        doc="""How often a batch that failed with a retriable error is sent again. The batch fails when this many
            retries have failed or `delivery.timeout.ms` have passed, whichever comes first; better set the latter. A
            batch of several producers uses the largest of theirs. Idempotence needs more than 0.""",
    )
    delivery_timeout_ms = Setting(
        INT,
        120_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        doc="""Milliseconds from the creation of a batch until its records are either acknowledged or reported as
            failed, with DeliveryTimeoutError. Covers lingering, waiting for a connection, requests and retries. A batch
            of several producers uses the longest of theirs, and a queued batch expires after those before it. At least
            `linger.ms` + `request.timeout.ms`; the default is raised to that.""",
    )
    max_request_size = Setting(
        INT,
        1024 * 1024,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Most bytes in one request of the sender, which carries at most one batch of each partition; a single
            batch is sent even if it is larger. Also the largest record that `send` of this producer accepts, before
            compression. At most `buffer.memory`; the default is lowered to that.""",
    )
    request_timeout_ms = Setting(
        INT,
        30_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Milliseconds that the sender waits for the response to a request before the request counts as failed and
            its batches are retried.""",
    )
    acks = Setting(
        STRING_OR_NUMBER,
        "all",
        one_of("all", "-1", "0", "1"),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""When a record counts as acknowledged. `all` (or `-1`): once every in-sync replica of the partition has
            it. `1`: once the leader has it. `0`: once it is handed to the transport; its offset is then -1 and it is
            never retried. The log transport has one copy, so there `all` and `1` mean the same. Idempotence needs
            `all`.""",
    )
    enable_idempotence = Setting(
        BOOLEAN,
        True,
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""Whether batches carry a producer id and a sequence number. With them, the broker stores a batch that is
            sent again once and in order, even if another sender process sends it after a crash. Needs `acks` all,
            `retries` above 0, `message.format.version` 0.11 or later and at most 5 for
            `max.in.flight.requests.per.connection`. If one of the first three does not hold, the default becomes false,
            and an explicit true is refused. More than 5 in flight are refused unless this is false.""",
    )
    transactional_id = Setting(
        STRING,
        "",
        importance=Importance.LOW,
        scope=Scope.PRODUCER,
        doc="""Id under which the producer sends its records in transactions; empty: without them. `init_transactions`
            ends what an earlier producer of the same id left open, on whatever host, and fences that one. Needs
            `enable.idempotence` and `transport` kafka. At most 256 bytes.""",
    )
    transaction_timeout_ms = Setting(
        INT,
        60_000,
        at_least(1),
        importance=Importance.LOW,
        scope=Scope.PRODUCER,
        doc="""Milliseconds after which the brokers abort a transaction that is still open. At most the brokers'
            transaction.max.timeout.ms, 15 minutes by default. Needs `transactional.id`.""",
    )
    max_in_flight_requests_per_connection = Setting(
        INT,
        5,
        at_least(1),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""Requests to one broker that the sender can have in flight. Without idempotence, more than 1 means that a
            retry can change the order of batches. With idempotence at most 5, and 5 then means batches of each
            partition, in any number of requests: a broker remembers that many batches of a producer and partition to
            detect duplicates.""",
    )
    metadata_max_age_ms = Setting(
        LONG,
        300_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Milliseconds after which the sender refreshes the metadata of the topics in use, even if nothing hints at
            a change, to find new partitions.""",
    )
    metadata_max_idle_ms = Setting(
        LONG,
        300_000,
        at_least(5_000),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Milliseconds after which the sender stops refreshing the metadata of a topic that nothing is sent to.""",
    )
    retry_backoff_max_ms = Setting(
        LONG,
        1_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Most milliseconds between two attempts to send a batch. If `retry.backoff.ms` is larger, this is the wait
            before every retry.""",
    )
    retry_backoff_ms = Setting(
        LONG,
        100,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Milliseconds that a batch waits before its first retry. The wait grows exponentially with each further
            retry, up to `retry.backoff.max.ms`.""",
    )
