"""The producer's settings: Kafka's, by Kafka's names, with the defaults of Kafka 4, and a few of our own.

Nothing but definitions. Where a range or a meaning differs from Kafka's, its validator or its
documentation says why.
"""

from __future__ import annotations

from enum import StrEnum

from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.validators import DISTINCT, at_least, between, matching, one_of
from shmaccum.config.valuetypes import BOOLEAN, CLASS, INT, INT_MAX, LONG, LONG_MAX, PATH, STRING, list_of, optional
from shmaccum.slabname import SLAB_NAME_PATTERN, SLAB_NAME_RULE


class Group(StrEnum):
    """The parts of the documentation, in its order."""

    ACCUMULATOR = "Accumulator"
    DELIVERY = "Delivery"
    LOG_TRANSPORT = "Log transport"
    PRODUCER = "Producer"
    SLAB = "Slab and sender"


class ProducerSettings(Config):
    """What can be set (``org.apache.kafka.clients.producer.ProducerConfig``; for the log, ``LogConfig``)."""

    __slots__ = ()

    # --- accumulator ---------------------------------------------------------------------------

    buffer_memory = Setting(
        LONG,
        32 * 1024 * 1024,
        at_least(1024),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.ACCUMULATOR,
        doc="""Bytes of shared memory for batches that are being filled or are waiting to be acknowledged,
            for all the producers of the host together. When none is free, `send` waits up to `max.block.ms`
            for it, first come, first served. The slab's tables take memory beside this. At least
            `batch.size`.""",
    )
    compression_type = Setting(
        STRING,
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.ACCUMULATOR,
        doc="""How batches are compressed. A batch is compressed as a whole, so fuller batches compress better. The
            producer that fills a batch compresses it; the sender compresses those that are sent before they are full,
            and all of them where `message.format.version` is older than 0.11. A full batch that compression does not
            make smaller is sent as it is. `zstd` needs `message.format.version` 0.11 or later. The slab takes sixteen
            times `batch.size` more memory than without compression.""",
    )
    batch_size = Setting(
        INT,
        16384,
        at_least(1024, "a slot of the slab holds one batch, so Kafka's 0, no batching, has no meaning here"),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.ACCUMULATOR,
        doc="""Bytes in a slot, which holds one batch: records for the same partition, from any producer of the
            host. A batch is sent once it is full or `linger.ms` have passed. Every batch takes its slot as a whole,
            however few its records. A record larger than a slot gets a run of adjacent slots and a batch of its
            own.""",
    )
    linger_ms = Setting(
        LONG,
        5,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.ACCUMULATOR,
        doc="""Milliseconds that a batch that is not full waits for more records, counted from its first. A batch is
            sent sooner when it is full, while producers wait for memory, and on `flush` and `close`.""",
    )
    max_block_ms = Setting(
        LONG,
        60_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        group=Group.ACCUMULATOR,
        doc="""Milliseconds that one call of `send` may wait, for the topic's metadata and for memory together, before
            it fails with KafkaTimeoutError or BufferExhaustedError. Time spent in serializers is not counted.""",
    )

    # --- delivery ------------------------------------------------------------------------------

    retries = Setting(
        INT,
        INT_MAX,
        between(0, INT_MAX),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""How often a batch that failed with a retriable error is sent again. It is given up when this many retries
            have failed or `delivery.timeout.ms` have passed, whichever comes first; the latter is the better one
            to set. Idempotence needs more than 0.""",
    )
    delivery_timeout_ms = Setting(
        INT,
        120_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Milliseconds from the creation of a batch until its records are either acknowledged or reported as
            failed, with DeliveryTimeoutError. Covers lingering, waiting for a connection, requests and retries.
            At least `linger.ms` + `request.timeout.ms`; where it was not given, it is raised to that.""",
    )
    max_request_size = Setting(
        INT,
        1024 * 1024,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Most bytes in one request of the sender, which carries at most one batch for each partition; a single
            batch goes out even if it is larger. Also the largest record that `send` takes, before compression.
            At most `buffer.memory`; where it was not given, it is lowered to that.""",
    )
    request_timeout_ms = Setting(
        INT,
        30_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Milliseconds that the sender waits for the answer to a request before it counts as failed and its
            batches are tried again.""",
    )
    acks = Setting(
        STRING,
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
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Milliseconds after which the sender asks again about the topics in use, even if nothing hints at a
            change, to find new partitions.""",
    )
    metadata_max_idle_ms = Setting(
        LONG,
        300_000,
        at_least(5_000),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Milliseconds after which the sender stops asking about a topic to which nothing has been sent.""",
    )
    retry_backoff_max_ms = Setting(
        LONG,
        1_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Most milliseconds between two attempts to send a batch. If `retry.backoff.ms` is larger, this is the wait
            before every retry.""",
    )
    retry_backoff_ms = Setting(
        LONG,
        100,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        group=Group.DELIVERY,
        doc="""Milliseconds that a batch waits before its first retry. The wait grows exponentially with each further
            retry, up to `retry.backoff.max.ms`.""",
    )

    # --- log transport -------------------------------------------------------------------------

    log_dir = Setting(
        PATH,
        "",
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""Directory of the log: each partition is a directory in it, named `<topic>-<partition>`, that holds
            segment files in Kafka's format. Required by `transport` log. A relative path is taken from the working
            directory of the process that creates the producer.""",
    )
    flush_messages = Setting(
        LONG,
        LONG_MAX,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""Records written to a partition after which its log is synced to disk; 1 syncs after every batch. By
            default the operating system decides when to write: what is acknowledged survives the death of every
            process, but not of the host.""",
    )
    flush_ms = Setting(
        LONG,
        LONG_MAX,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""Milliseconds after which what was written to a partition is synced to disk. By default the operating
            system decides.""",
    )
    message_format_version = Setting(
        STRING,
        "3.0-IV1",
        matching(
            r"v[012]|[0-9]+\.[0-9]+(\.[0-9]+){0,2}(-IV[0-9]+)?",
            "a version of Kafka, such as 0.10.2 or 3.0-IV1, or one of v0, v1, v2",
        ),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""The format that batches are written in, by the version of Kafka that has it or by its own number: v0
            before 0.10, v1 before 0.11, v2 from then on. Only v2 has headers, idempotence and zstd.""",
    )
    num_partitions = Setting(
        INT,
        1,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""Partitions that a topic gets when it is first used. A topic that is in the log already keeps those that
            it has. At most `shmaccum.max.partitions`.""",
    )
    segment_bytes = Setting(
        INT,
        1024 * 1024 * 1024,
        at_least(1024),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.LOG_TRANSPORT,
        doc="""Most bytes in a segment file: a batch that would exceed them begins the next one. At least `batch.size`;
            a batch of one large record that does not fit either fails with RecordBatchTooLargeError.""",
    )

    # --- producer ------------------------------------------------------------------------------

    key_serializer = Setting(
        optional(CLASS),
        None,
        importance=Importance.HIGH,
        scope=Scope.PRODUCER,
        group=Group.PRODUCER,
        doc="""A callable that takes a record's key and returns its bytes, or its dotted name. Without one, a key is
            bytes or text.""",
    )
    value_serializer = Setting(
        optional(CLASS),
        None,
        importance=Importance.HIGH,
        scope=Scope.PRODUCER,
        group=Group.PRODUCER,
        doc="""A callable that takes a record's value and returns its bytes, or its dotted name. Without one, a value is
            bytes or text.""",
    )
    client_id = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        group=Group.PRODUCER,
        doc="""A name by which people tell this producer from others, in its log messages and metrics.""",
    )
    partitioner_ignore_keys = Setting(
        BOOLEAN,
        False,
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        group=Group.PRODUCER,
        doc="""Whether a record with a key is treated like one without when its partition is chosen: sent to the
            partition of the moment, rather than to the one that the hash of its key says.""",
    )
    interceptor_classes = Setting(
        list_of(CLASS),
        (),
        DISTINCT,
        importance=Importance.LOW,
        scope=Scope.PRODUCER,
        group=Group.PRODUCER,
        doc="""Classes of interceptors, or their dotted names, in the order in which they see a record before it is
            serialized. Each is called without arguments when the producer is created.""",
    )

    # --- slab and sender -----------------------------------------------------------------------

    transport = Setting(
        STRING,
        "log",
        one_of("log"),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Where the sender takes the batches. `log`: into segment files in Kafka's format, in `log.dir`.""",
    )
    sender_idle_ms = Setting(
        LONG,
        10_000,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SENDER,
        group=Group.SLAB,
        doc="""Milliseconds that a sender stays when no producer lives and nothing is left to send; then it removes the
            slab and exits. -1: it stays for ever, as `shmaccum sender` does by default.""",
    )
    sender_log_file = Setting(
        PATH,
        "",
        importance=Importance.MEDIUM,
        scope=Scope.SENDER,
        group=Group.SLAB,
        doc="""File to which the sender process appends its own messages. Empty: it writes none; `shmaccum sender`
            writes them to its standard error in any case.""",
    )
    shmaccum_max_partitions = Setting(
        INT,
        4096,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Partitions, of all topics together, for which the slab has room. A topic that brings more fails with
            SlabFullError.""",
    )
    shmaccum_max_processes = Setting(
        INT,
        128,
        between(1, 1024),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Processes, the sender included, that can use the slab at once. One more fails with SlabFullError.""",
    )
    shmaccum_max_topics = Setting(
        INT,
        512,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Topics for which the slab has room. One more fails with SlabFullError.""",
    )
    shmaccum_name = Setting(
        STRING,
        "",
        matching(f"({SLAB_NAME_PATTERN})?", f"empty, or {SLAB_NAME_RULE}"),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Name of the slab. By default it is made from all settings of scope slab and the user id, so that
            producers with the same settings share a slab and others do not. A producer that names a slab which was
            made with other settings is refused.""",
    )
