"""The slab, and the process that serves it: what Kafka has no setting for."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.settings.group import Group
from shmaccum.config.validators import at_least, between, matching, one_of
from shmaccum.config.valuetypes import INT, LONG, PATH, STRING
from shmaccum.slabname import SLAB_NAME_PATTERN, SLAB_NAME_RULE


class SlabSettings(Config):
    """Settings of our own."""

    __slots__ = ()

    transport = Setting(
        STRING,
        "kafka",
        one_of("kafka", "log"),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Where the sender takes the batches. `kafka`: to the cluster that `bootstrap.servers` belong to. `log`:
            into segment files in Kafka's format, in `log.dir`.""",
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
        doc="""Name of the slab. By default it is made from all settings of scope slab, the user id and the version of
            shmaccum, so that producers with the same settings share a slab and others do not. Passwords are not in
            it, since everybody can read it. A producer whose settings or passwords are not those that the slab was made
            with is refused.""",
    )
