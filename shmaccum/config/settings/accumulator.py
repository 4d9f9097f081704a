"""How records are gathered into batches, and in how much memory."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.settings.group import Group
from shmaccum.config.validators import at_least, between, between_or, one_of
from shmaccum.config.valuetypes import INT, LONG, STRING


class AccumulatorSettings(Config):
    """Kafka's settings of the RecordAccumulator and BufferPool (``ProducerConfig``)."""

    __slots__ = ()

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
        scope=Scope.PRODUCER,
        group=Group.ACCUMULATOR,
        doc="""How batches are compressed: each as the producer that began it wants it. A batch is compressed as a
            whole, so fuller batches compress better. The producer that fills a batch compresses it; the sender
            compresses those that are sent before they are full, and all of them where `message.format.version` is older
            than 0.11. A full batch that compression does not make smaller is sent as it is. `zstd` needs
            `message.format.version` 0.11 or later. Where sixteen times `batch.size` is more than an eighth of
            `buffer.memory`, a slab that was made without compression has no memory for the producers to compress in,
            and the sender compresses all.""",
    )
    compression_gzip_level = Setting(
        INT,
        -1,
        between_or(1, 9, -1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.ACCUMULATOR,
        doc="""Level of `compression.type` gzip: 1 is fastest, 9 compresses best; -1 is zlib's own choice, 6.""",
    )
    compression_lz4_level = Setting(
        INT,
        9,
        between(1, 17),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.ACCUMULATOR,
        doc="""Level of `compression.type` lz4. The default stands for LZ4's fast compressor, as in Kafka; every other
            level for its high compressor, which compresses better the higher the level, and has no more than 12.""",
    )
    compression_zstd_level = Setting(
        INT,
        3,
        between(-131072, 22),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.ACCUMULATOR,
        doc="""Level of `compression.type` zstd: the higher, the better it compresses, and the longer it takes.""",
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
            however few its records. A record larger than a slot gets as many slots as it takes, wherever they are
            free, and a batch of its own.""",
    )
    linger_ms = Setting(
        LONG,
        5,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.PRODUCER,
        group=Group.ACCUMULATOR,
        doc="""Milliseconds that a batch that is not full waits for more records, counted from its first. A batch of
            several producers waits for the least of theirs. It is sent sooner when it is full, while producers wait for
            memory, and on `flush` and `close`; and later by 50 ms at most, or until there is an answer, where the
            sender is busy with very many that are small.""",
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
