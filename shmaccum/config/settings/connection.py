"""Settings of the brokers' addresses and of connections to them."""

from __future__ import annotations

from shmaccum.config.configdef import Config, Group, Importance, Scope, Setting
from shmaccum.config.validators import at_least, one_of
from shmaccum.config.valuetypes import ADDRESSES, INT, LONG, STRING, word


class ConnectionSettings(Config, group=Group.CONNECTION):
    """Kafka's settings of its ``NetworkClient`` (``CommonClientConfigs``)."""

    __slots__ = ()

    bootstrap_servers = Setting(
        ADDRESSES,
        (),
        importance=Importance.HIGH,
        scope=Scope.SLAB,
        doc="""Brokers to discover the cluster from, as `host1:port1,host2:port2`. Give more than one, in case one is
            down; their order does not matter. Required by `transport` kafka.""",
    )
    client_dns_lookup = Setting(
        STRING,
        "use_all_dns_ips",
        one_of("use_all_dns_ips"),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""How a broker's name is resolved: the sender tries all its addresses until it can connect to one.""",
    )
    client_id = Setting(
        STRING,
        "",
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""The name that the sender gives to brokers, for their logs and quotas. One sender has one name: that of
            its newest producer. A program that needs its own quota needs its own `shmaccum.name`. Empty:
            `shmaccum-` and the slab's name.""",
    )
    connections_max_idle_ms = Setting(
        LONG,
        540_000,
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Milliseconds after which an unused connection is closed. Negative: never.""",
    )
    metadata_recovery_rebootstrap_trigger_ms = Setting(
        LONG,
        300_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Milliseconds without a metadata response after which the sender closes its connections and starts again
            from `bootstrap.servers`. Only with `metadata.recovery.strategy` rebootstrap.""",
    )
    metadata_recovery_strategy = Setting(
        word(str.lower),
        "rebootstrap",
        one_of("rebootstrap", "none"),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""What the sender does when it can reach none of the brokers that it knows. `rebootstrap`: it also asks
            `bootstrap.servers`. It starts again from them if a broker requests that (REBOOTSTRAP_REQUIRED), or after
            `metadata.recovery.rebootstrap.trigger.ms`. `none`: it keeps trying the brokers that it knows.""",
    )
    receive_buffer_bytes = Setting(
        INT,
        32 * 1024,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Bytes of a connection's receive buffer (SO_RCVBUF). -1: the operating system's default.""",
    )
    send_buffer_bytes = Setting(
        INT,
        128 * 1024,
        at_least(-1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Bytes of a connection's send buffer (SO_SNDBUF). -1: the operating system's default.""",
    )
    socket_connection_setup_timeout_max_ms = Setting(
        LONG,
        30_000,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Most milliseconds that the sender waits for a connection to a broker to be established, after any number
            of failures.""",
    )
    socket_connection_setup_timeout_ms = Setting(
        LONG,
        10_000,
        at_least(1),
        importance=Importance.MEDIUM,
        scope=Scope.SHARED,
        doc="""Milliseconds that the sender waits for a connection to a broker to be established. Grows exponentially
            with each further failure, up to `socket.connection.setup.timeout.max.ms`.""",
    )
    reconnect_backoff_max_ms = Setting(
        LONG,
        1_000,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Most milliseconds between two attempts to connect to a broker. If only `reconnect.backoff.ms` is given,
            it takes that value.""",
    )
    reconnect_backoff_ms = Setting(
        LONG,
        50,
        at_least(0),
        importance=Importance.LOW,
        scope=Scope.SHARED,
        doc="""Milliseconds that the sender waits before it connects again to a broker after a failed attempt. The wait
            grows exponentially with each further failure, up to `reconnect.backoff.max.ms`.""",
    )
