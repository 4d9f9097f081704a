"""The settings of brokers, of broker.properties, sasl.properties and tls.properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

from tools.kafka.tls import Certificates

if TYPE_CHECKING:
    from tools.kafka.node import Node

USERS: Final = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
"""Names and passwords of a cluster with SASL, in PLAIN and SCRAM alike; ``admin`` is a super user."""
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
"""OAUTHBEARER takes any unsecured token (a JWT without signature)."""

CLUSTER_ID: Final = "c2htYWNjdW0tdGVzdHMtMQ"


def security_protocol(sasl: bool, tls: bool) -> str:
    """Return Kafka's name of what clients must speak."""
    return f"SASL_{'SSL' if tls else 'PLAINTEXT'}" if sasl else "SSL" if tls else "PLAINTEXT"


def broker_settings(
    node: Node,
    cluster: Mapping[int, Node],
    sasl: bool,
    certificates: Certificates | None,
    overrides: Mapping[str, object],
) -> str:
    """Return the properties of one node.

    With SASL, clients must authenticate, and access-control lists count. With certificates, they must speak TLS, and
    can show a certificate. The overrides come last, and so win.
    """
    files = ["broker", *["sasl"] * sasl]
    parts: dict[str, Any] = {
        "protocol": security_protocol(sasl, certificates is not None),
        "voters": ",".join(f"{id}@127.0.0.1:{each.controller_port}" for id, each in cluster.items()),
        "replicas": min(3, len(cluster)),
        "in_sync": min(2, len(cluster)),
        "mechanisms": ",".join(MECHANISMS),
        "users": " ".join(f'user_{name}="{password}"' for name, password in USERS.items()),
    }
    if certificates is not None:
        files.append("tls")
        parts |= {"pem": certificates.broker.pem, "ca": certificates.ca}
    text = "".join(Path(__file__).with_name(f"{name}.properties").read_text() for name in files)
    lines = "".join(f"{name}={value}\n" for name, value in overrides.items())
    return Template(text).substitute(vars(node), **parts) + lines


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
