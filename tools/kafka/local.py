"""The cluster of the command line: one per project, detached, known by a file that says what runs where."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tools.kafka.cluster import KafkaCluster, ensure_kafka
from tools.kafka.errors import KafkaToolError
from tools.kafka.jars import HOME
from tools.kafka.running import Running
from tools.kafka.settings import MECHANISMS, USERS
from tools.kafka.tls import Certificates, make_certificates

DIRECTORY: Final = HOME / "run"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster that was started.

    Attributes:
        bootstrap_servers: what clients connect to.
        usage: the settings of a client, by Kafka's names, as the lines of a properties file.
        nodes: pid and start time of each broker, by its id.
    """

    bootstrap_servers: str
    usage: list[str]
    nodes: dict[str, tuple[int, int]]

    def running(self) -> dict[str, Running]:
        """Return the brokers' processes, dead or alive, by node id."""
        return {id: Running(*process) for id, process in self.nodes.items()}


def started() -> LocalCluster | None:
    """Return the cluster that was started last and not stopped since, None if there is none."""
    try:
        return LocalCluster(**json.loads((DIRECTORY / "cluster.json").read_text()))
    except FileNotFoundError:
        return None


def start(nodes: int, sasl: bool, tls: bool) -> LocalCluster:
    """Start a cluster that outlives this process, and creates a topic on the first write to it.

    Raises:
        KafkaToolError: one runs already, or why this one does not.
    """
    before = started()
    if before is not None and any(broker.is_alive() for broker in before.running().values()):
        raise KafkaToolError(f"a cluster is running, at {before.bootstrap_servers}: stop it first")
    ensure_kafka()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    certificates = make_certificates(DIRECTORY / "tls") if tls else None
    overrides = {"auto.create.topics.enable": "true"}
    cluster = KafkaCluster(DIRECTORY, nodes, sasl=sasl, certificates=certificates, overrides=overrides, detached=True)
    cluster.start()
    local = LocalCluster(
        bootstrap_servers=cluster.bootstrap_servers,
        usage=_usage(cluster, sasl, certificates),
        nodes={str(id): node.running for id, node in cluster.nodes.items() if node.running is not None},
    )
    _write(local)
    return local


def stop() -> bool:
    """Stop the cluster and remove all that it kept; return whether there was one."""
    local = started()
    if local is None:
        return False
    for broker in local.running().values():
        broker.kill()
    shutil.rmtree(DIRECTORY)
    return True


def _usage(cluster: KafkaCluster, sasl: bool, certificates: Certificates | None) -> list[str]:
    lines = [f"bootstrap.servers={cluster.bootstrap_servers}", f"security.protocol={cluster.security_protocol}"]
    if sasl:
        user, password = next(iter(USERS.items()))
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        lines += [
            f"# users (all may do everything until there is a rule): {', '.join(map('/'.join, USERS.items()))}",
            f"# mechanisms: {', '.join(MECHANISMS)}",
            f"sasl.mechanism={MECHANISMS[0]}",
            f'sasl.jaas.config={module} required username="{user}" password="{password}";',
        ]
    if certificates is not None:
        lines += [
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={certificates.ca}",
            "# a client may show a certificate:",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={certificates.client.pem}",
        ]
    return lines


def _write(local: LocalCluster) -> None:
    file = DIRECTORY / "cluster.json"
    made = Path(f"{file}.new")
    made.write_text(json.dumps(asdict(local), indent=2))
    made.rename(file)
