"""Settings of the log transport: segment files in Kafka's format."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import at_least, matching
from shmaccum.config.valuetypes import INT, LONG, LONG_MAX, PATH, STRING


class LogSettings(Config, group=Group.LOG_TRANSPORT):
    """Kafka's settings of a broker's log and of topics (``LogConfig``), for the log transport."""

    __slots__ = ()

    log_dir = Setting(
        PATH,
        "",
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        doc="""Directory of the log. Each partition is a directory in it, named `<topic>-<partition>`, that holds
            segment files in Kafka's format. Required by `transport` log. A relative path starts at the working
            directory of the process that creates the producer. A new directory is private to its user (mode 0700); an
            existing one keeps its permissions. Segments must be regular files of the sender's user, and not links.""",
    )
    flush_messages = Setting(
        LONG,
        LONG_MAX,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Records written to a partition after which its log is synced to disk; 1 syncs after every batch. By
            default the operating system decides when to write: acknowledged records survive the death of every
            process, but not of the host.""",
    )
    flush_ms = Setting(
        LONG,
        LONG_MAX,
        at_least(0),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Milliseconds after which records written to a partition are synced to disk. By default the operating
            system decides.""",
    )
    message_format_version = Setting(
        STRING,
        "3.0-IV1",
        matching(
            r"v[12]|[0-9]+\.[0-9]+(\.[0-9]+){0,2}(-IV[0-9]+)?",
            "a version of Kafka from 0.10 on, such as 0.10.2 or 3.0-IV1, or one of v1, v2",
        ),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""The format of batches, as a version of Kafka or as its own number: v1 before 0.11, v2 from then
            on. Only v2 has headers, idempotence and zstd.""",
    )
    num_partitions = Setting(
        INT,
        1,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Partitions of a new topic. A topic that is in the log already keeps its partitions. At most
            `shmaccum.max.partitions`.""",
    )
    segment_bytes = Setting(
        INT,
        1024 * 1024 * 1024,
        at_least(1024),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Most bytes in a segment file: a batch that would exceed them begins the next file. At least `batch.size`;
            a batch of one larger record that does not fit fails with RecordBatchTooLargeError.""",
    )
