"""The producer's settings: Kafka's names and Kafka 4's defaults, and some of our own.

Only definitions, one class for each group. If a range or a meaning differs from Kafka's, its validator or its
documentation gives the reason.
"""

from __future__ import annotations

from typing import Final

from shmaccum.abi import MAX_LANES, MAX_SHARDS, SHARD_PATTERN, SLAB_NAME_PATTERN, SLAB_NAME_RULE
from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.valuetypes import (
    ADDRESSES,
    AUTO,
    BOOLEAN,
    CLASS,
    DISTINCT,
    INT,
    INT_MAX,
    INT_OR_AUTO,
    LONG,
    LONG_MAX,
    PASSWORD,
    PATH,
    SERIALIZER,
    STRING,
    STRING_OR_NUMBER,
    Validator,
    at_least,
    auto_or,
    between,
    list_of,
    matching,
    one_of,
    optional,
    path_or,
    word,
)

LARGEST_REQUEST: Final = INT_MAX - (64 << 20)
"""Most bytes of batches in a request: its size has 31 bits, and counts topics and partitions, too."""
LEAST_SLOT: Final = 1024
"""Least bytes of a slot."""
NO_LOG: Final = "none"
"""Instead of a file: write no log."""
_STORE_TYPE: Final = one_of("PEM", "PKCS12", "JKS", "")
_GZIP_LEVEL: Final = Validator[int](lambda level: level == -1 or 1 <= level <= 9, "between 1 and 9, or -1")
_COMPRESSION: Final = one_of("none", "gzip", "snappy", "lz4", "zstd")
_MECHANISM: Final = one_of("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PROTOCOL: Final = one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CALLABLE: Final = matching(
    r"([A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*)?", "empty, or the dotted name of a callable"
)
_FORMAT: Final = matching(
    r"v[12]|[0-9]+\.[0-9]+(\.[0-9]+){0,2}(-IV[0-9]+)?",
    "a version of Kafka from 0.10 on, such as 0.10.2 or 3.0-IV1, or one of v1, v2",
)
_NAME: Final = matching(
    f"({SLAB_NAME_PATTERN}({SHARD_PATTERN})?)?", f"empty, or {SLAB_NAME_RULE}; '@' and a number choose a shard"
)


class AccumulatorSettings(Config, group=Group.ACCUMULATOR):
    """Kafka's settings of the RecordAccumulator and BufferPool (``ProducerConfig``)."""

    __slots__ = ()

    buffer_memory = Setting(LONG, 32 * 1024 * 1024, Importance.HIGH, Scope.SLAB, at_least(1024)).says("""
        Bytes of shared memory for batches, from the first record until they are complete, for all producers of the host
        together. If none is free, `send` waits up to `max.block.ms` for it, first come, first served. The slab's tables
        take memory beside this.""")
    compression_type = Setting(STRING, "none", Importance.HIGH, Scope.PRODUCER, _COMPRESSION).says("""
        How batches are compressed; the producer that begins a batch decides. A batch is compressed as a whole, so
        larger batches compress better. The sender compresses batches, on its own threads, up to one a processor, at
        most eight. `zstd` needs `message.format.version` 0.11 or later.""")
    compression_gzip_level = Setting(INT, -1, Importance.MEDIUM, Scope.SHARED, _GZIP_LEVEL).says("""
        Level of `compression.type` gzip: 1 is fastest, 9 compresses best; -1 is zlib's default, 6.""")
    compression_lz4_level = Setting(INT, 9, Importance.MEDIUM, Scope.SHARED, between(1, 17)).says("""
        Level of `compression.type` lz4. The default selects LZ4's fast compressor, as in Kafka. Every other level
        selects its high compressor: higher levels compress better, and levels above 12 count as 12.""")
    compression_zstd_level = Setting(INT, 3, Importance.MEDIUM, Scope.SHARED, between(-131072, 22)).says("""
        Level of `compression.type` zstd: higher levels compress better and take longer.""")
    batch_size = Setting(INT, 16384, Importance.MEDIUM, Scope.PRODUCER, at_least(0)).says("""
        Bytes of a full batch: records of one partition, from any producer of the host. A batch of several producers
        uses the smallest of theirs. A batch is sent once it is full or `linger.ms` have passed; 0 sends each as soon as
        possible. If it cannot be sent then, it grows, up to `batch.max.bytes`. A batch takes slots of
        `shmaccum.slot.size` as it gets records, adjacent or not, and can fill the last one. A record larger than a
        batch gets its own.""")
    batch_max_bytes = Setting(INT_OR_AUTO, AUTO, Importance.MEDIUM, Scope.PRODUCER, auto_or(at_least(1))).says("""
        Bytes up to which a batch grows beyond `batch.size` (KIP-782). A batch grows, slot by slot, while its partition
        has others in flight or queued before it. So batches stay small where brokers answer at once, and are large
        where they are far or busy. It counts records before any compression, and whole slots, at least one. `auto`:
        `max.request.size`, and at most a sixteenth of `buffer.memory`. With a value of `batch.size` or less, batches do
        not grow.""")
    linger_ms = Setting(LONG, 5, Importance.MEDIUM, Scope.PRODUCER, at_least(0)).says("""
        Milliseconds that a batch that is not full waits for more records, counted from its first. A batch of several
        producers uses the shortest of theirs. It is sent sooner when it is full, while producers wait for memory, and
        on `flush` and `close`. If the sender is busy with many small batches, it is sent up to 50 ms later, or when the
        next response arrives.""")
    max_block_ms = Setting(LONG, 60_000, Importance.MEDIUM, Scope.PRODUCER, at_least(0)).says("""
        Milliseconds that one call of `send` can wait, for the topic's metadata and for memory together, before it fails
        with KafkaTimeoutError or BufferExhaustedError. Time spent in serializers does not count.""")


class DeliverySettings(Config, group=Group.DELIVERY):
    """Kafka's settings of the Sender (``ProducerConfig``)."""

    __slots__ = ()

    retries = Setting(INT, INT_MAX, Importance.HIGH, Scope.PRODUCER, between(0, INT_MAX)).says("""
        How often a batch that failed with a retriable error is sent again. The batch fails when this many retries have
        failed or `delivery.timeout.ms` have passed, whichever comes first; better set the latter. A batch of several
        producers uses the largest of theirs. Idempotence needs more than 0.""")
    delivery_timeout_ms = Setting(INT, 120_000, Importance.MEDIUM, Scope.PRODUCER, at_least(0)).says("""
        Milliseconds from the creation of a batch until its records are either acknowledged or reported as failed, with
        DeliveryTimeoutError. Covers lingering, waiting for a connection, requests and retries. A batch of several
        producers uses the longest of theirs, and a queued batch expires after those before it. At least `linger.ms` +
        `request.timeout.ms`; the default is raised to that.""")
    max_request_size = Setting(INT, 1024 * 1024, Importance.MEDIUM, Scope.SHARED, between(0, LARGEST_REQUEST)).says("""
        Most bytes in one request of the sender, which carries at most one batch of each partition; a single batch is
        sent even if it is larger. Also the largest record that `send` of this producer accepts, before compression. At
        most `buffer.memory`; the default is lowered to that.""")
    request_timeout_ms = Setting(INT, 30_000, Importance.MEDIUM, Scope.SHARED, at_least(0)).says("""
        Milliseconds that the sender waits for the response to a request before the request counts as failed and its
        batches are retried.""")
    acks = Setting(STRING_OR_NUMBER, "all", Importance.LOW, Scope.SLAB, one_of("all", "-1", "0", "1")).says("""
        When a record counts as acknowledged. `all` (or `-1`): once every in-sync replica of the partition has it. `1`:
        once the leader has it. `0`: once it is handed to the transport; its offset is then -1 and it is never retried.
        The log transport has one copy, so there `all` and `1` mean the same. Idempotence needs `all`.""")
    enable_idempotence = Setting(BOOLEAN, True, Importance.LOW, Scope.SLAB).says("""
        Whether batches carry a producer id and a sequence number. With them, the broker stores a batch that is sent
        again once and in order, even if another sender process sends it after a crash. Needs `acks` all, `retries`
        above 0, `message.format.version` 0.11 or later and at most 5 for `max.in.flight.requests.per.connection`. If
        one of the first three does not hold, the default becomes false, and an explicit true is refused. More than 5 in
        flight are refused unless this is false.""")
    transactional_id = Setting(STRING, "", Importance.LOW, Scope.PRODUCER).says("""
        Id under which the producer sends its records in transactions; empty: without them. `init_transactions` ends
        what an earlier producer of the same id left open, on whatever host, and fences that one. Needs
        `enable.idempotence` and `transport` kafka. At most 256 bytes.""")
    transaction_timeout_ms = Setting(INT, 60_000, Importance.LOW, Scope.PRODUCER, at_least(1)).says("""
        Milliseconds after which the brokers abort a transaction that is still open. At most the brokers'
        transaction.max.timeout.ms, 15 minutes by default. Needs `transactional.id`.""")
    max_in_flight_requests_per_connection = Setting(INT, 5, Importance.LOW, Scope.SLAB, at_least(1)).says("""
        Requests that a connection to a broker can have in flight. Without idempotence, more than 1 means that a retry
        can change the order of batches. With idempotence at most 5, and 5 then means batches of each partition, in any
        number of requests: a broker remembers that many batches of a producer and partition to detect duplicates.""")
    metadata_max_age_ms = Setting(LONG, 300_000, Importance.LOW, Scope.SHARED, at_least(0)).says("""
        Milliseconds after which the sender refreshes the metadata of the topics in use, even if nothing hints at a
        change, to find new partitions.""")
    metadata_max_idle_ms = Setting(LONG, 300_000, Importance.LOW, Scope.SHARED, at_least(5_000)).says("""
        Milliseconds after which the sender stops refreshing the metadata of a topic that nothing is sent to.""")
    retry_backoff_max_ms = Setting(LONG, 1_000, Importance.LOW, Scope.SHARED, at_least(0)).says("""
        Most milliseconds between two attempts to send a batch. If `retry.backoff.ms` is larger, this is the wait before
        every retry.""")
    retry_backoff_ms = Setting(LONG, 100, Importance.LOW, Scope.SHARED, at_least(0)).says("""
        Milliseconds that a batch waits before its first retry. The wait grows exponentially with each further retry, up
        to `retry.backoff.max.ms`.""")


class ConnectionSettings(Config, group=Group.CONNECTION, scope=Scope.SHARED):
    """Kafka's settings of its ``NetworkClient`` (``CommonClientConfigs``)."""

    __slots__ = ()

    bootstrap_servers = Setting(ADDRESSES, (), Importance.HIGH, Scope.SLAB).says("""
        Brokers to discover the cluster from, as `host1:port1,host2:port2`. Give more than one, in case one is down;
        their order does not matter. Required by `transport` kafka.""")
    client_dns_lookup = Setting(STRING, "use_all_dns_ips", Importance.MEDIUM, valid=one_of("use_all_dns_ips")).says("""
        How a broker's name is resolved: the sender tries all its addresses until it can connect to one.""")
    client_id = Setting(STRING, "", Importance.MEDIUM).says("""
        The name that the sender gives to brokers, for their logs and quotas. One sender has one name: that of its
        newest producer. A program that needs its own quota needs its own `shmaccum.name`. Empty: `shmaccum-` and the
        slab's name.""")
    connections_max_idle_ms = Setting(LONG, 540_000, Importance.MEDIUM).says("""
        Milliseconds after which an unused connection is closed. Negative: never.""")
    metadata_recovery_rebootstrap_trigger_ms = Setting(LONG, 300_000, Importance.LOW, valid=at_least(0)).says("""
        Milliseconds without a metadata response after which the sender closes its connections and starts again from
        `bootstrap.servers`. Only with `metadata.recovery.strategy` rebootstrap.""")
    metadata_recovery_strategy = Setting(
        word(str.lower), "rebootstrap", Importance.LOW, valid=one_of("rebootstrap", "none")
    ).says("""
        What the sender does when it can reach none of the brokers that it knows. `rebootstrap`: it also asks
        `bootstrap.servers`. It starts again from them if a broker requests that (REBOOTSTRAP_REQUIRED), or after
        `metadata.recovery.rebootstrap.trigger.ms`. `none`: it keeps trying the brokers that it knows.""")
    receive_buffer_bytes = Setting(INT, 32 * 1024, Importance.MEDIUM, valid=at_least(-1)).says("""
        Bytes of a connection's receive buffer (SO_RCVBUF). -1: the operating system's default.""")
    send_buffer_bytes = Setting(INT, -1, Importance.MEDIUM, valid=at_least(-1)).says("""
        Bytes of a connection's send buffer (SO_SNDBUF). -1: the operating system's default, which grows with the
        distance. Kafka's default, 131072, bounds what can be under way to a far broker.""")
    socket_connection_setup_timeout_max_ms = Setting(LONG, 30_000, Importance.MEDIUM, valid=at_least(1)).says("""
        Most milliseconds that the sender waits for a connection to a broker to be established, after any number of
        failures.""")
    socket_connection_setup_timeout_ms = Setting(LONG, 10_000, Importance.MEDIUM, valid=at_least(1)).says("""
        Milliseconds that the sender waits for a connection to a broker to be established. Grows exponentially with each
        further failure, up to `socket.connection.setup.timeout.max.ms`.""")
    reconnect_backoff_max_ms = Setting(LONG, 1_000, Importance.LOW, valid=at_least(0)).says("""
        Most milliseconds between two attempts to connect to a broker. If only `reconnect.backoff.ms` is given, it takes
        that value.""")
    reconnect_backoff_ms = Setting(LONG, 50, Importance.LOW, valid=at_least(0)).says("""
        Milliseconds that the sender waits before it connects again to a broker after a failed attempt. The wait grows
        exponentially with each further failure, up to `reconnect.backoff.max.ms`.""")


class SecuritySettings(Config, group=Group.SECURITY, scope=Scope.SLAB):
    """Kafka's settings of TLS and SASL (``SslConfigs``, ``SaslConfigs``), in PEM (KIP-651) or in Java's keystores."""

    __slots__ = ()

    sasl_jaas_config = Setting(optional(PASSWORD), None, Importance.MEDIUM).says("""
        The credentials in the form of Kafka's Java clients, `<login module> required username="..." password="...";`,
        with PlainLoginModule or ScramLoginModule, which accepts `tokenauth=true` for a delegation token. Of
        Krb5LoginModule, `useKeyTab`, `keyTab`, `principal`, `useTicketCache` and `serviceName` are supported;
        OAuthBearerLoginModule has no options here. Excludes the settings with the same meaning.""")
    sasl_kerberos_keytab = Setting(PATH, "", Importance.MEDIUM).says("""
        The keytab with the keys of `sasl.kerberos.principal`, with which the sender gets its tickets. By default they
        come from the credential cache of the user. The name is librdkafka's; in Java it is `keyTab` in
        `sasl.jaas.config`. A relative path starts at the working directory of the process that creates the
        producer.""")
    sasl_kerberos_principal = Setting(STRING, "", Importance.MEDIUM).says("""
        The sender's principal. Required by `sasl.kerberos.keytab`. Without a keytab it selects one of the credential
        caches of the user. Programs with caches of their own (`KRB5CCNAME`, an absolute path) must name theirs:
        otherwise they share a slab, and all records are sent as the principal of the program that started the sender.
        The name is librdkafka's; in Java it is `principal` in `sasl.jaas.config`.""")
    sasl_kerberos_service_name = Setting(STRING, "", Importance.MEDIUM).says("""
        The Kerberos principal that the brokers run as. Required by `sasl.mechanism` GSSAPI. The sender gets its own
        ticket with `sasl.kerberos.keytab`, or from the credential cache of the user.""")
    sasl_mechanism = Setting(word(str.upper), "GSSAPI", Importance.MEDIUM, valid=_MECHANISM).says("""
        How the sender authenticates, if `security.protocol` has SASL.""")
    sasl_oauthbearer_token_provider = Setting(STRING, "", Importance.MEDIUM, valid=_CALLABLE).says("""
        Dotted name of a callable that returns a token (text). The sender imports it and calls it without arguments for
        every connection, one call at a time, on a background thread. If the call takes longer than
        `socket.connection.setup.timeout.ms`, the login is tried again once the call has returned: give the callable a
        time limit. Required by `sasl.mechanism` OAUTHBEARER.""")
    sasl_password = Setting(optional(PASSWORD), None, Importance.MEDIUM).says("""
        The password of `sasl.username`. Required by `sasl.mechanism` PLAIN and SCRAM.""")
    sasl_tokenauth = Setting(BOOLEAN, False, Importance.MEDIUM).says("""
        Whether `sasl.username` and `sasl.password` are the id and the HMAC of one of Kafka's delegation tokens
        (KIP-48), for `sasl.mechanism` SCRAM. In Java it is `tokenauth=true` in `sasl.jaas.config`.""")
    sasl_username = Setting(STRING, "", Importance.MEDIUM).says("""
        The sender's user name at the brokers. Required by `sasl.mechanism` PLAIN and SCRAM.""")
    security_protocol = Setting(word(str.upper), "PLAINTEXT", Importance.MEDIUM, valid=_PROTOCOL).says("""
        Whether connections are encrypted (SSL) and whether the sender logs in (SASL).""")
    ssl_key_password = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The password of the private key in `ssl.keystore.location` or `ssl.keystore.key`, if the key is encrypted. In a
        Java keystore the default is the store's password.""")
    ssl_keystore_certificate_chain = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The sender's certificate and the certificates of its issuers, as text in PEM. Together with `ssl.keystore.key`,
        instead of `ssl.keystore.location`.""")
    ssl_keystore_key = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The private key of `ssl.keystore.certificate.chain`, as text in PEM.""")
    ssl_keystore_location = Setting(PATH, "", Importance.HIGH).says("""
        PEM file or Java keystore (JKS, PKCS#12) with the sender's private key and certificates, for brokers that ask
        for one. PKCS#12 needs `pip install 'shmaccum[keystores]'`. A relative path starts at the working directory of
        the process that creates the producer.""")
    ssl_keystore_password = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The password of the Java keystore in `ssl.keystore.location`. A PEM file has none.""")
    ssl_truststore_certificates = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The certificate authorities that the brokers' certificates must be signed by, as text in PEM. Instead of
        `ssl.truststore.location`.""")
    ssl_truststore_location = Setting(PATH, "", Importance.HIGH).says("""
        PEM file or Java keystore (JKS, PKCS#12) of the certificate authorities that the brokers' certificates must be
        signed by. Without it and `ssl.truststore.certificates`, the operating system's are used.""")
    ssl_truststore_password = Setting(optional(PASSWORD), None, Importance.HIGH).says("""
        The password of the Java keystore in `ssl.truststore.location`. Without it, a JKS is read without an integrity
        check. A PEM file has none.""")
    ssl_keystore_type = Setting(word(str.upper), "", Importance.MEDIUM, valid=_STORE_TYPE).says("""
        The format of `ssl.keystore.location`; by default the file's content decides. JKS and PKCS12 are
        interchangeable, as in Java.""")
    ssl_truststore_type = Setting(word(str.upper), "", Importance.MEDIUM, valid=_STORE_TYPE).says("""
        The format of `ssl.truststore.location`; by default the file's content decides. JKS and PKCS12 are
        interchangeable, as in Java.""")
    ssl_endpoint_identification_algorithm = Setting(
        word(str.lower), "https", Importance.LOW, valid=one_of("https", "")
    ).says("""
        Whether a broker's certificate must match the name that the sender connects to (https), or can be any trusted
        one (empty).""")


class LogSettings(Config, group=Group.LOG_TRANSPORT):
    """Kafka's settings of a broker's log and of topics (``LogConfig``), for the log transport."""

    __slots__ = ()

    log_dir = Setting(PATH, "", Importance.HIGH, Scope.SLAB).says("""
        Directory of the log. Each partition is a directory in it, named `<topic>-<partition>`, that holds segment files
        in Kafka's format. Required by `transport` log. A relative path starts at the working directory of the process
        that creates the producer. A new directory is private to its user (mode 0700); an existing one keeps its
        permissions. Segments must be regular files of the sender's user, and not links.""")
    flush_messages = Setting(LONG, LONG_MAX, Importance.MEDIUM, Scope.SLAB, at_least(1)).says("""
        Records written to a partition after which its log is synced to disk; 1 syncs after every batch. By default the
        operating system decides when to write: acknowledged records survive the death of every process, but not of the
        host.""")
    flush_ms = Setting(LONG, LONG_MAX, Importance.MEDIUM, Scope.SLAB, at_least(0)).says("""
        Milliseconds after which records written to a partition are synced to disk. By default the operating system
        decides.""")
    message_format_version = Setting(STRING, "3.0-IV1", Importance.MEDIUM, Scope.SLAB, _FORMAT).says("""
        The format of batches, as a version of Kafka or as its own number: v1 before 0.11, v2 from then on. Only v2 has
        headers, idempotence and zstd.""")
    num_partitions = Setting(INT, 1, Importance.MEDIUM, Scope.SHARED, at_least(1)).says("""
        Partitions of a new topic. A topic that is in the log already keeps its partitions. At most
        `shmaccum.max.partitions`.""")
    segment_bytes = Setting(INT, 1024 * 1024 * 1024, Importance.MEDIUM, Scope.SHARED, at_least(1024)).says("""
        Most bytes in a segment file: a batch that would exceed them begins the next file. At least `batch.size`; a
        batch of one larger record that does not fit fails with RecordBatchTooLargeError.""")


class OwnSettings(Config, group=Group.PRODUCER, scope=Scope.PRODUCER):
    """Kafka's settings of what a producer does before a record is in a batch (``ProducerConfig``)."""

    __slots__ = ()

    key_serializer = Setting(optional(SERIALIZER), None, Importance.HIGH).says("""
        A callable that takes a record's key and returns its bytes, or its dotted name. An object with a method
        `serialize`, as in kafka-python, or a class of such objects, is called as `serialize(topic, key)`, and closed
        with the producer if it has `close`. Without one, a key is bytes or text.""")
    value_serializer = Setting(optional(SERIALIZER), None, Importance.HIGH).says("""
        A callable that takes a record's value and returns its bytes, or its dotted name. An object with a method
        `serialize`, as in kafka-python, or a class of such objects, is called as `serialize(topic, value)`, and closed
        with the producer if it has `close`. Without one, a value is bytes or text.""")
    partitioner_ignore_keys = Setting(BOOLEAN, False, Importance.MEDIUM).says("""
        Whether the partitioner ignores a record's key: the record goes to the current sticky partition, not to the
        partition that the hash of its key selects.""")
    interceptor_classes = Setting(list_of(CLASS), (), Importance.LOW, valid=DISTINCT).says("""
        Classes of interceptors, or their dotted names, in the order in which they see a record before it is serialized.
        Each is called without arguments when the producer is created.""")
    partitioner_adaptive_partitioning_enable = Setting(BOOLEAN, True, Importance.LOW).says("""
        Whether records without a key go more often to partitions with fewer waiting batches, whose brokers are faster.
        Otherwise all partitions get the same share.""")
    partitioner_availability_timeout_ms = Setting(LONG, 0, Importance.LOW, valid=at_least(0)).says("""
        Milliseconds. A broker that has accepted none of its ready batches for this long gets no further records without
        a key. 0: never. Needs `partitioner.adaptive.partitioning.enable`.""")


class SlabSettings(Config, group=Group.SLAB):
    """Settings of our own."""

    __slots__ = ()

    transport = Setting(STRING, "kafka", Importance.HIGH, Scope.SLAB, one_of("kafka", "log")).says("""
        Where the sender writes batches. `kafka`: to the cluster of `bootstrap.servers`. `log`: into segment files in
        Kafka's format, in `log.dir`.""")
    sender_core_dump = Setting(BOOLEAN, False, Importance.LOW, Scope.SENDER).says("""
        Whether a sender that crashes leaves a normal core dump. Its memory holds records and passwords, so by default
        it leaves none, or one without memory.""")
    sender_idle_ms = Setting(LONG, 10_000, Importance.MEDIUM, Scope.SENDER, at_least(-1)).says("""
        Milliseconds that a sender stays when no producer lives and nothing is left to send; then it removes the slab
        and exits. -1: it stays forever, as `shmaccum sender` does by default.""")
    sender_log_file = Setting(path_or(NO_LOG), "", Importance.MEDIUM, Scope.SENDER).says("""
        File to which the sender process appends its log: a regular file of its user, and not a link. Empty:
        `$XDG_STATE_HOME/shmaccum/NAME.log` (`~/.local/state` if that is not set), where NAME is the slab's; it rotates
        at 1 MiB and keeps one old file. Without a writable home there is no log. `none`: no log. `shmaccum sender` logs
        to its standard error, and to a file only if one is named.""")
    shmaccum_checksum = Setting(STRING, "seal", Importance.LOW, Scope.SLAB, one_of("seal", "append")).says("""
        When the checksum of a batch is made. `seal`: by the sender, when it sends the batch. `append`: by the
        producers, with each record. Then records that change in shared memory after `send` returned, as by faulty
        memory or a program that writes where it should not, are not sent: their batch fails with CorruptRecordError.
        `send` takes longer for it.""")
    shmaccum_connections_per_broker = Setting(
        INT_OR_AUTO, AUTO, Importance.LOW, Scope.SHARED, auto_or(between(1, 16))
    ).says("""
        Most connections of a sender to a broker. It has one, and more only while `max.request.size` bytes of requests
        wait for the answer to another: a broker handles one request of a connection at a time, and its receive buffer
        bounds what a connection carries in a round trip, by Kafka's defaults to 100 KiB. The broker's partitions are
        divided among them until that has not been so for 60 seconds. `auto`: 2, or 16 if the broker's answers take a
        millisecond or more.""")
    shmaccum_max_partitions = Setting(INT_OR_AUTO, AUTO, Importance.MEDIUM, Scope.SLAB, auto_or(at_least(1))).says("""
        Partitions, of all topics together, that the slab has room for; each takes 256 bytes of shared memory. A topic
        that exceeds them fails with SlabFullError. `auto`: one for each KiB of `buffer.memory`, which is 32,768 for 32
        MiB; at least 4,096, and at most 200,000.""")
    shmaccum_max_processes = Setting(INT, 128, Importance.MEDIUM, Scope.SLAB, between(2, 1024)).says("""
        Processes, the sender included, that can use the slab at once. One more fails with SlabFullError. The last entry
        is reserved for the sender, so that a dead sender can always be replaced.""")
    shmaccum_max_topics = Setting(INT_OR_AUTO, AUTO, Importance.MEDIUM, Scope.SLAB, auto_or(at_least(1))).says("""
        Topics that the slab has room for; each takes 384 bytes of shared memory. One more fails with SlabFullError.
        `auto`: one for each 3 KiB of `buffer.memory`, which is 10,922 for 32 MiB; at least 512, and at most
        100,000.""")
    shmaccum_max_transactions = Setting(INT, 64, Importance.LOW, Scope.SLAB, between(1, MAX_LANES)).says("""
        Transactions that the slab has room for at once; each takes 320 bytes of shared memory, and an entry of
        `shmaccum.max.partitions` for every partition that it sends to. One more fails with SlabFullError.""")
    shmaccum_name = Setting(STRING, "", Importance.MEDIUM, Scope.SLAB, _NAME).says("""
        Name of the slab. The default is a hash of the settings of scope slab that are not at their defaults, the user
        id and the version of the slab's layout. Producers that agree on these share a slab; others do not. Passwords
        are not in it, because every user of the host can read it. A producer is refused if its settings of scope slab,
        or its passwords, differ from those that the slab was created with. With `shmaccum.shards`, `NAME@K` is shard K
        alone, from 0.""")
    shmaccum_shards = Setting(INT_OR_AUTO, 1, Importance.MEDIUM, Scope.SLAB, auto_or(between(1, MAX_SHARDS))).says("""
        Slabs, each with a sender, among which producers with the same settings are divided, for hosts where one sender
        is too slow. Each process joins the one with the fewest producers, and stays. Order holds as before: for the
        records of a process in a partition. The shards divide `buffer.memory`. `auto`: one for every 8 cores that the
        process can use, by its affinity and the quotas of its cgroups. Needs transport `kafka`.""")
    shmaccum_slot_size = Setting(INT_OR_AUTO, AUTO, Importance.LOW, Scope.SLAB, auto_or(at_least(LEAST_SLOT))).says("""
        Bytes of a slot, rounded down to a multiple of 8. A batch takes memory slot by slot, so one small record takes
        this much. `auto`: 16384. With a `message.format.version` before 0.11, a batch has one slot, and `auto` is
        `batch.size`.""")


class ProducerSettings(
    AccumulatorSettings, DeliverySettings, ConnectionSettings, SecuritySettings, LogSettings, OwnSettings, SlabSettings
):
    """All settings (``org.apache.kafka.clients.producer.ProducerConfig``; for the log, ``LogConfig``)."""

    __slots__ = ()

    @property
    def slab_memory(self) -> int:
        """Bytes for batches in one slab: ``buffer.memory``, which the shards divide among them."""
        return self.buffer_memory // self.shmaccum_shards

    @property
    def has_record_batches(self) -> bool:
        """Whether ``message.format.version`` is 0.11 or later, the format v2 of KIP-98."""
        version = self.message_format_version
        if version.startswith("v"):
            return version == "v2"
        major, minor = version.split("-")[0].split(".")[:2]
        return (int(major), int(minor)) >= (0, 11)
