"""How batches are delivered: requests, retries, acknowledgements, metadata."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.settings.group import Group
from shmaccum.config.validators import at_least, between, one_of
from shmaccum.config.valuetypes import BOOLEAN, INT, INT_MAX, LONG, STRING_OR_NUMBER


class DeliverySettings(Config):
    """Kafka's settings of the Sender (``ProducerConfig``)."""

    __slots__ = ()

    retries = Setting(
        INT,
        INT_MAX,
        between(0, INT_MAX),
        importance=Importance.HIGH,
        scope=Scope.PRODUCER,
        group=Group.DELIVERY,
        doc="""How often a batch that failed with a retriable error is sent again. It is given up when this many retries
            have failed or `delivery.timeout.ms` have passed, whichever comes first; the latter is the better one to
            set. A batch of several producers has the most of theirs. Idempotence needs more than 0.""",
    )
    delivery_timeout_ms = Setting(
        INT,
        120_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        group=Group.DELIVERY,
        doc="""Milliseconds from the creation of a batch until its records are either acknowledged or reported as
            failed, with DeliveryTimeoutError. Covers lingering, waiting for a connection, requests and retries. A batch
            of several producers has the longest of theirs, and one in a queue goes after those before it. At least
            `linger.ms` + `request.timeout.ms`; where it was not given, it is raised to that.""",
    )
    max_request_size = Setting(
        INT,
        1024 * 1024,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Most bytes in one request of the sender, which carries at most one batch for each partition; a single
            batch goes out even if it is larger. Also the largest record that `send` of this producer takes, before
            compression. At most `buffer.memory`; where it was not given, it is lowered to that.""",
    )
    request_timeout_ms = Setting(
        INT,
        30_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Milliseconds that the sender waits for the answer to a request before it counts as failed and its
            batches are tried again.""",
    )
    acks = Setting(
        STRING_OR_NUMBER,
        "all",
        one_of("all", "-1", "0", "1"),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""When a record counts as acknowledged. `all` (or `-1`): once every in-sync copy of the partition has it.
            `1`: once the leader has it. `0`: once it is handed to the transport; its offset is then -1 and it is
            never retried. The log transport has one copy, so there `all` and `1` mean the same. Idempotence needs
            `all`.""",
    )
    enable_idempotence = Setting(
        BOOLEAN,
        True,
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Whether batches carry a producer id and a sequence number, by which a batch that is sent again, even by
            another sender process after a crash, is stored once and in order. Needs `acks` all, `retries` above 0,
            `message.format.version` 0.11 or later and at most 5 for `max.in.flight.requests.per.connection`.
            If one of the first three is not so, idempotence is off where this was not given, and refused where it
            was given as true; more than 5 in flight are refused unless this is false.""",
    )
    max_in_flight_requests_per_connection = Setting(
        INT,
        5,
        at_least(1),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Requests that the sender may have under way to one node without an answer. Without idempotence, more
            than 1 means that a retry can change the order of batches. With idempotence at most 5, since that is how
            many batches of a producer and partition are remembered to recognise one that comes again.""",
    )
    metadata_max_age_ms = Setting(
        LONG,
        300_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Milliseconds after which the sender asks again about the topics in use, even if nothing hints at a
            change, to find new partitions.""",
    )
    metadata_max_idle_ms = Setting(
        LONG,
        300_000,
        at_least(5_000),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Milliseconds after which the sender stops asking about a topic to which nothing has been sent.""",
    )
    retry_backoff_max_ms = Setting(
        LONG,
        1_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Most milliseconds between two attempts to send a batch. If `retry.backoff.ms` is larger, this is the wait
            before every retry.""",
    )
    retry_backoff_ms = Setting(
        LONG,
        100,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.DELIVERY,
        doc="""Milliseconds that a batch waits before its first retry. The wait grows exponentially with each further
            retry, up to `retry.backoff.max.ms`.""",
    )
