"""Settings of the slab and its sender, which Kafka does not have."""

from __future__ import annotations

from typing import Final

from shmaccum.abi import MAX_LANES, MAX_SHARDS, SHARD_PATTERN, SLAB_NAME_PATTERN, SLAB_NAME_RULE
from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import Validator, at_least, between, matching, one_of
from shmaccum.config.valuetypes import AUTO, BOOLEAN, INT, INT_OR_AUTO, LONG, STRING, path_or

LEAST_SLOT: Final = 1024
"""Least bytes of a slot."""
NO_LOG: Final = "none"
"""Instead of a file: write no log."""
_AUTO_OR_SOME: Final[Validator[int]] = Validator(lambda value: value == AUTO or value >= 1, "auto, or at least 1")


class SlabSettings(Config, group=Group.SLAB):
    """Settings of our own."""

    __slots__ = ()

    transport = Setting(
        STRING,
        "kafka",
        one_of("kafka", "log"),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        doc="""Where the sender writes batches. `kafka`: to the cluster of `bootstrap.servers`. `log`: into segment
            files in Kafka's format, in `log.dir`.""",
    )
    sender_core_dump = Setting(
        BOOLEAN,
        False,
        importance=Importance.LOW,
        scope=Scope.SENDER,
        doc="""Whether a sender that crashes leaves a normal core dump. Its memory holds records and passwords, so by
            default it leaves none, or one without memory.""",
    )
    sender_idle_ms = Setting(
        LONG,
        10_000,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SENDER,
        doc="""Milliseconds that a sender stays when no producer lives and nothing is left to send; then it removes the
            slab and exits. -1: it stays forever, as `shmaccum sender` does by default.""",
    )
    sender_log_file = Setting(
        path_or(NO_LOG),
        "",
        importance=Importance.MEDIUM,
        scope=Scope.SENDER,
        doc="""File to which the sender process appends its log: a regular file of its user, and not a link. Empty:
            `$XDG_STATE_HOME/shmaccum/NAME.log` (`~/.local/state` if that is not set), where NAME is the slab's; it
            rotates at 1 MiB and keeps one old file. Without a writable home there is no log. `none`: no log.
            `shmaccum sender` logs to its standard error, and to a file only if one is named.""",
    )
    shmaccum_checksum = Setting(
        STRING,
        "seal",
        one_of("seal", "append"),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""When the checksum of a batch is made. `seal`: by the sender, when it sends the batch. `append`: by the
            producers, with each record. Then records that change in shared memory after `send` returned, as by faulty
            memory or a program that writes where it should not, are not sent: their batch fails with
            CorruptRecordError. `send` takes longer for it.""",
    )
    shmaccum_max_partitions = Setting(
        INT_OR_AUTO,
        AUTO,
        _AUTO_OR_SOME,
        shown_default="auto",
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Partitions, of all topics together, that the slab has room for; each takes 256 bytes of shared memory. A
            topic that exceeds them fails with SlabFullError. `auto`: one for each KiB of `buffer.memory`, which is
            32,768 for 32 MiB; at least 4,096, and at most 200,000.""",
    )
    shmaccum_max_processes = Setting(
        INT,
        128,
        between(2, 1024),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Processes, the sender included, that can use the slab at once. One more fails with SlabFullError. The
            last entry is reserved for the sender, so that a dead sender can always be replaced.""",
    )
    shmaccum_max_topics = Setting(
        INT_OR_AUTO,
        AUTO,
        _AUTO_OR_SOME,
        shown_default="auto",
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Topics that the slab has room for; each takes 384 bytes of shared memory. One more fails with
            SlabFullError. `auto`: one for each 3 KiB of `buffer.memory`, which is 10,922 for 32 MiB; at least 512, and
            at most 100,000.""",
    )
    shmaccum_max_transactions = Setting(
        INT,
        64,
        between(1, MAX_LANES),
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""Transactions that the slab has room for at once; each takes 320 bytes of shared memory, and an entry of
            `shmaccum.max.partitions` for every partition that it sends to. One more fails with SlabFullError.""",
    )
    shmaccum_name = Setting(
        STRING,
        "",
        matching(
            f"({SLAB_NAME_PATTERN}({SHARD_PATTERN})?)?", f"empty, or {SLAB_NAME_RULE}; '@' and a number choose a shard"
        ),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Name of the slab. The default is a hash of the settings of scope slab that are not at their defaults, the
            user id and the version of the slab's layout. Producers that agree on these share a slab; others do not.
            Passwords are not in it, because every user of the host can read it. A producer is refused if its settings
            of scope slab, or its passwords, differ from those that the slab was created with. With `shmaccum.shards`,
            `NAME@K` is shard K alone, from 0.""",
    )
    shmaccum_shards = Setting(
        INT_OR_AUTO,
        1,
        Validator(lambda value: value == AUTO or 1 <= value <= MAX_SHARDS, f"auto, or 1 to {MAX_SHARDS}"),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        doc="""Slabs, each with a sender, among which producers with the same settings are divided, for hosts where one
            sender is too slow. Each process joins the one with the fewest producers, and stays. Order holds as before:
            for the records of a process in a partition. The shards divide `buffer.memory`. `auto`: one for every 8
            cores that the process can use, by its affinity and the quotas of its cgroups. Needs transport `kafka`.""",
    )
    shmaccum_slot_size = Setting(
        INT_OR_AUTO,
        AUTO,
        Validator(lambda value: value == AUTO or value >= LEAST_SLOT, f"auto, or at least {LEAST_SLOT}"),
        shown_default="auto",
        importance=Importance.LOW,
        scope=Scope.SLAB,
        doc="""Bytes of a slot, rounded down to a multiple of 8. A batch takes memory slot by slot, so one small record
            takes this much. `auto`: 16384. With a `message.format.version` before 0.11, a batch has one slot, and
            `auto` is `batch.size`.""",
    )
