"""``python3 -m tools.kafka start [--nodes 1|3] [--sasl] [--tls] | stop``.

Starts a real Apache Kafka on free ports of this machine, to try things out; it runs until it is stopped, and
its data is removed then. Needs Python, Java and Maven, and nothing of this project's environment. There is one cluster
per project, detached, known by a file that says what runs where.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tools.kafka.cluster import KafkaCluster, ensure_kafka
from tools.kafka.errors import KafkaToolError
from tools.kafka.jars import HOME, VERSION
from tools.kafka.running import Running
from tools.kafka.settings import MECHANISMS, USERS
from tools.kafka.tls import Certificates, make_certificates

DIRECTORY = HOME / "run"


def main() -> int | str:
    """Run a command; return its exit status, or why it failed."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.kafka", description="A local Apache Kafka, to try things.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a cluster, and fetch Apache Kafka first if need be")
    start.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="how many brokers (default: 1)")
    start.add_argument("--sasl", action="store_true", help="clients must authenticate")
    start.add_argument("--tls", action="store_true", help="clients must speak TLS")
    commands.add_parser("stop", help="stop it, and remove its data")
    arguments = parser.parse_args()
    try:
        if arguments.command == "start":
            _start(arguments.nodes, arguments.sasl, arguments.tls)
        else:
            _stop()
    except KafkaToolError as error:
        return str(error)
    return 0


def _start(nodes: int, sasl: bool, tls: bool) -> None:
    """Start a cluster that outlives this process, and creates a topic on the first write to it."""
    before = _started()
    if any(broker.is_alive() for broker in _brokers(before)):
        raise KafkaToolError(f"a cluster is running, at {before['bootstrap_servers']}: stop it first")
    ensure_kafka()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    certificates = make_certificates(DIRECTORY / "tls") if tls else None
    overrides = {"auto.create.topics.enable": "true"}
    cluster = KafkaCluster(DIRECTORY, nodes, sasl=sasl, certificates=certificates, overrides=overrides, detached=True)
    cluster.start()
    started = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": [node.running for node in cluster.nodes.values()],
    }
    made = DIRECTORY / "cluster.json.new"
    made.write_text(json.dumps(started, indent=2))
    made.rename(DIRECTORY / "cluster.json")
    print(f"Apache Kafka {VERSION} is running; its clients' settings:")
    for line in _usage(cluster, sasl, certificates):
        print(f"    {line}")
    print("python3 -m tools.kafka stop stops it, and removes its data")


def _stop() -> None:
    started = _started()
    for broker in _brokers(started):
        broker.kill()
    if started:
        shutil.rmtree(DIRECTORY)
    print("stopped" if started else "nothing is running")


def _started() -> dict[str, Any]:
    """Return the cluster that was started last and not stopped since; empty if there is none."""
    file = Path(DIRECTORY, "cluster.json")
    return json.loads(file.read_text()) if file.exists() else {}


def _brokers(started: dict[str, Any]) -> list[Running]:
    """Return the brokers' processes, dead or alive."""
    return [Running(*process) for process in started.get("brokers", ())]


def _usage(cluster: KafkaCluster, sasl: bool, certificates: Certificates | None) -> list[str]:
    """Return the settings of a client, by Kafka's names, as the lines of a properties file."""
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


if __name__ == "__main__":
    sys.exit(main())
