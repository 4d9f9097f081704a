"""Settings of batches and of the memory for them."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import Validator, at_least, between, between_or, one_of
from shmaccum.config.valuetypes import AUTO, INT, INT_OR_AUTO, LONG, STRING


class AccumulatorSettings(Config, group=Group.ACCUMULATOR):
    """Kafka's settings of the RecordAccumulator and BufferPool (``ProducerConfig``)."""

    __slots__ = ()

    buffer_memory = Setting(
        LONG,
        32 * 1024 * 1024,
        at_least(1024),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        doc="""Bytes of shared memory for batches, from the first record until they are complete, for all producers of
            the host together. If none is free, `send` waits up to `max.block.ms` for it, first come, first served. The
            slab's tables take memory beside this. At least `batch.size`.""",
    )
    compression_type = Setting(
        STRING,
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=Importance.HIGH,
        scope=Scope.PRODUCER,
        doc="""How batches are compressed; the producer that begins a batch decides. A batch is compressed as a
            whole, so larger batches compress better. The sender compresses batches, on its own threads, up to one a
            processor. Batches of columns and large records are compressed by their producer, and are sent uncompressed
            if that does not make them smaller. `zstd` needs `message.format.version` 0.11 or later.""",
    )
    compression_gzip_level = Setting(
        INT,
        -1,
        between_or(1, 9, -1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Level of `compression.type` gzip: 1 is fastest, 9 compresses best; -1 is zlib's default, 6.""",
    )
    compression_lz4_level = Setting(
        INT,
        9,
        between(1, 17),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Level of `compression.type` lz4. The default selects LZ4's fast compressor, as in Kafka. Every other
            level selects its high compressor: higher levels compress better, and levels above 12 count as 12.""",
    )
    compression_zstd_level = Setting(
        INT,
        3,
        between(-131072, 22),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Level of `compression.type` zstd: higher levels compress better and take longer.""",
    )
    batch_size = Setting(
        INT,
        16384,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        doc="""Bytes of a full batch: records of one partition, from any producer of the host. A batch of several
            producers uses the smallest of theirs. A batch is sent once it is full or `linger.ms` have passed; 0 sends
            each as soon as possible. If it cannot be sent then, it grows, up to `batch.max.bytes`. A batch takes slots
            of `shmaccum.slot.size` as it gets records, adjacent or not, and can fill the last one. A record larger than
            a batch gets its own.""",
    )
    batch_max_bytes = Setting(
        INT_OR_AUTO,
        AUTO,
        Validator(lambda value: value == AUTO or value >= 1, "auto, or at least 1"),
        shown_default="auto",
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        doc="""Bytes up to which a batch grows beyond `batch.size` (KIP-782). A batch grows, slot by slot, while its
            partition has others in flight or queued before it. So batches stay small where brokers answer at once, and
            are large where they are far or busy. It counts records before any
            compression, and whole slots, at least one. `auto`: `max.request.size`, and at most a sixteenth of
            `buffer.memory`. With a value of `batch.size` or less, batches do not grow.""",
    )
    linger_ms = Setting(
        LONG,
        5,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        doc="""Milliseconds that a batch that is not full waits for more records, counted from its first. A batch of
            several producers uses the shortest of theirs. It is sent sooner when it is full, while producers wait for
            memory, and on `flush` and `close`. If the sender is busy with many small batches, it is sent up to 50 ms
            later, or when the next response arrives.""",
    )
    max_block_ms = Setting(
        LONG,
        60_000,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        doc="""Milliseconds that one call of `send` can wait, for the topic's metadata and for memory together, before
            it fails with KafkaTimeoutError or BufferExhaustedError. Time spent in serializers does not count.""",
    )
