"""The slab, and the process that serves it: what Kafka has no setting for."""

from __future__ import annotations

from typing import Final

from shmaccum.abi import SLAB_NAME_PATTERN, SLAB_NAME_RULE
from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.settings.group import Group
from shmaccum.config.validators import Validator, at_least, between, matching, one_of
from shmaccum.config.valuetypes import AUTO, BOOLEAN, INT, INT_OR_AUTO, LONG, STRING, path_or

NO_LOG: Final = "none"
"""Instead of a file: no log at all."""
_AUTO_OR_SOME: Final[Validator[int]] = Validator(lambda value: value == AUTO or value >= 1, "auto, or at least 1")


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
    sender_core_dump = Setting(
        BOOLEAN,
        False,
        importance=Importance.LOW,
        scope=Scope.SENDER,
        group=Group.SLAB,
        doc="""Whether a sender that crashes leaves a core dump as other programs do. Its memory holds records and
            passwords, so by default it leaves none, or one without memory.""",
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
        path_or(NO_LOG),
        "",
        importance=Importance.MEDIUM,
        scope=Scope.SENDER,
        group=Group.SLAB,
        doc="""File to which the sender process appends its own messages: a regular one of its user, and no link. Empty:
            `$XDG_STATE_HOME/shmaccum/NAME.log` (`~/.local/state` where that is not set), NAME being the slab's; it
            rotates at 1 MiB, with one more kept. Without a home that can be written to there is none. `none`: it writes
            none. `shmaccum sender` writes to its standard error, and to a file only if one is named.""",
    )
    shmaccum_max_partitions = Setting(
        INT_OR_AUTO,
        AUTO,
        _AUTO_OR_SOME,
        shown_default="auto",
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Partitions, of all topics together, for which the slab has room; each takes 128 bytes of shared memory. A
            topic that brings more fails with SlabFullError. `auto`: one for each KiB of `buffer.memory`, which is
            32,768 for 32 MiB; at least 4,096, and at most 200,000.""",
    )
    shmaccum_max_processes = Setting(
        INT,
        128,
        between(2, 1024),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Processes, the sender included, that can use the slab at once. One more fails with SlabFullError. The
            last place is kept for the sender, so that one that dies always finds a successor.""",
    )
    shmaccum_max_topics = Setting(
        INT_OR_AUTO,
        AUTO,
        _AUTO_OR_SOME,
        shown_default="auto",
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Topics for which the slab has room; each takes 320 bytes of shared memory. One more fails with
            SlabFullError. `auto`: one for each 3 KiB of `buffer.memory`, which is 10,922 for 32 MiB; at least 512, and
            at most 100,000.""",
    )
    shmaccum_name = Setting(
        STRING,
        "",
        matching(f"({SLAB_NAME_PATTERN})?", f"empty, or {SLAB_NAME_RULE}"),
        importance=Importance.MEDIUM,
        scope=Scope.SLAB,
        group=Group.SLAB,
        doc="""Name of the slab. By default it is made from the settings of scope slab that are not as by default, the
            user id and the version of the slab's layout, so that producers that agree on these share a slab and others
            do not. Passwords are not in it, since everybody can read it. A producer whose settings of scope slab, or
            whose passwords, are not those that the slab was made with is refused.""",
    )
