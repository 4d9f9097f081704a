"""Where the brokers are, and how the sender connects to them."""

from __future__ import annotations

from shmaccum.config.addresses import ADDRESSES
from shmaccum.config.configdef import Config, Importance, Scope, Setting
from shmaccum.config.settings.group import Group
from shmaccum.config.validators import at_least, one_of
from shmaccum.config.valuetypes import INT, LONG, STRING, word


class ConnectionSettings(Config):
    """Kafka's settings of its ``NetworkClient`` (``CommonClientConfigs``)."""

    __slots__ = ()

    bootstrap_servers = Setting(
        ADDRESSES,
        (),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        group=Group.CONNECTION,
        doc="""Brokers to begin with, as `host1:port1,host2:port2`; the others are learnt from them. More than one, so
            that one of them may be down; their order does not matter. Required by `transport` kafka.""",
    )
    client_dns_lookup = Setting(
        STRING,
        "use_all_dns_ips",
        one_of("use_all_dns_ips"),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""How a broker's name is looked up: every address that it has is tried, until one can be connected to.""",
    )
    client_id = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""The name that the sender gives to brokers, for their logs and quotas. One sender has one name: that of
            its newest producer. For a quota of its own, a program needs a `shmaccum.name` of its own. Empty:
            `shmaccum-` and the slab's name.""",
    )
    connections_max_idle_ms = Setting(
        LONG,
        540_000,
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Milliseconds after which a connection that is not used is closed. Negative: never.""",
    )
    metadata_recovery_rebootstrap_trigger_ms = Setting(
        LONG,
        300_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Milliseconds without any answer about the cluster after which the sender closes its connections and
            begins again from `bootstrap.servers`. Only with `metadata.recovery.strategy` rebootstrap.""",
    )
    metadata_recovery_strategy = Setting(
        word(str.lower),
        "rebootstrap",
        one_of("rebootstrap", "none"),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""What the sender does when none of the brokers that it knows can be had. `rebootstrap`: it asks
            `bootstrap.servers` too, and begins again from them when a broker says so (REBOOTSTRAP_REQUIRED), or after
            `metadata.recovery.rebootstrap.trigger.ms`. `none`: it goes on trying those that it knows.""",
    )
    receive_buffer_bytes = Setting(
        INT,
        32 * 1024,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Bytes of a connection's receive buffer (SO_RCVBUF). -1: what the operating system thinks best.""",
    )
    send_buffer_bytes = Setting(
        INT,
        128 * 1024,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Bytes of a connection's send buffer (SO_SNDBUF). -1: what the operating system thinks best.""",
    )
    socket_connection_setup_timeout_max_ms = Setting(
        LONG,
        30_000,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Most milliseconds that the sender waits for a connection to a broker to stand, however often it failed
            before.""",
    )
    socket_connection_setup_timeout_ms = Setting(
        LONG,
        10_000,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Milliseconds that the sender waits for a connection to a broker to stand. Grows exponentially with each
            further failure, up to `socket.connection.setup.timeout.max.ms`.""",
    )
    reconnect_backoff_max_ms = Setting(
        LONG,
        1_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Most milliseconds between two attempts to connect to a broker. Where only `reconnect.backoff.ms` was
            given, it is the same as that.""",
    )
    reconnect_backoff_ms = Setting(
        LONG,
        50,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        group=Group.CONNECTION,
        doc="""Milliseconds that the sender waits before it connects again to a broker that it could not connect to.
            The wait grows exponentially with each further failure, up to `reconnect.backoff.max.ms`.""",
    )
