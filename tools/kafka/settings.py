"""The settings of a small broker: KRaft, combined with its controller, three listeners on loopback.

* ``CLIENT``: for clients, with the cluster's configured security, and with an advertised port that can be a proxy's
* ``INTERNAL``: for the brokers among themselves and the tests' administration; always open, never through a proxy
* ``CONTROLLER``: for the quorum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tools.kafka.tls import Certificates

if TYPE_CHECKING:
    from tools.kafka.node import Node

USERS: Final = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
"""Names and passwords of a cluster with SASL, in PLAIN and SCRAM alike; ``admin`` is a super user."""
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
"""OAUTHBEARER takes any unsecured token (a JWT without signature)."""

CLUSTER_ID: Final = "c2htYWNjdW0tdGVzdHMtMQ"

_MODULES: Final = "org.apache.kafka.common.security"


def security_protocol(sasl: bool, tls: bool) -> str:
    """Return Kafka's name of what clients must speak."""
    return f"SASL_{'SSL' if tls else 'PLAINTEXT'}" if sasl else "SSL" if tls else "PLAINTEXT"


def broker_settings(
    node: Node,
    cluster: Mapping[int, Node],
    sasl: bool,
    certificates: Certificates | None,
    overrides: Mapping[str, object],
) -> dict[str, object]:
    """Return the settings of one node, beside those of broker.properties.

    With certificates, clients must speak TLS, and may show a certificate, or not; ``overrides`` win over all others.
    """
    settings: dict[str, object] = {"process.roles": "broker,controller", "node.id": node.id, "log.dirs": node.data}
    settings |= _listeners(node, cluster, security_protocol(sasl, certificates is not None))
    settings |= _replicas(len(cluster))
    if sasl:
        settings |= _sasl()
    if certificates is not None:
        settings |= _tls(certificates)
    return settings | dict(overrides)


def format_arguments(sasl: bool, features: Mapping[str, int]) -> Sequence[str]:
    """Return what Kafka's storage tool is to write besides the cluster's id: features, and the SCRAM users."""
    levels = [argument for name, level in features.items() for argument in ("--feature", f"{name}={level}")]
    if not sasl:
        return levels
    return levels + [
        argument
        for mechanism in SCRAM_MECHANISMS
        for name, password in USERS.items()
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def _listeners(node: Node, cluster: Mapping[int, Node], protocol: str) -> dict[str, object]:
    internal = f"INTERNAL://127.0.0.1:{node.internal_port}"
    return {
        "listeners": f"CLIENT://127.0.0.1:{node.port},{internal},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{node.advertised_port},{internal}",
        "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{id}@127.0.0.1:{each.controller_port}" for id, each in cluster.items()),
    }


def _replicas(nodes: int) -> dict[str, object]:
    replicas, in_sync = min(3, nodes), min(2, nodes)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def _sasl() -> dict[str, object]:
    plain = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    jaas = {
        "plain": f"{_MODULES}.plain.PlainLoginModule required {plain};",
        "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
    } | {name.lower(): f"{_MODULES}.scram.ScramLoginModule required;" for name in SCRAM_MECHANISMS}
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.client.{mechanism}.sasl.jaas.config": config for mechanism, config in jaas.items()},
        "delegation.token.secret.key": "delegation-secret",  # every authenticated user can get tokens
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",  # the internal listeners' users have no name
        "allow.everyone.if.no.acl.found": "true",
    }


def _tls(certificates: Certificates) -> dict[str, object]:
    settings = {
        "keystore.type": "PEM",
        "keystore.location": certificates.broker.pem,
        "truststore.type": "PEM",
        "truststore.location": certificates.ca,
        "client.auth": "requested",
    }
    # With the listener's name in front: else ssl.client.auth does not count where there is SASL as well.
    return {f"listener.name.client.ssl.{name}": value for name, value in settings.items()}
