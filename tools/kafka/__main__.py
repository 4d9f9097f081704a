"""``python3 -m tools.kafka start [--nodes 1|3] [--sasl] [--tls] | stop | status | fetch``.

Starts a real Apache Kafka on free ports of this machine, to try things out; it runs until it is stopped, and
its data is removed then. Needs Python, Java and Maven, and nothing of this project's environment.
"""

from __future__ import annotations

import argparse
import sys

from tools.kafka import local
from tools.kafka.cluster import ensure_kafka
from tools.kafka.errors import KafkaToolError
from tools.kafka.jars import VERSION, jar_directory


def main() -> int:
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "start":
                return _start(arguments)
            case "stop":
                print("stopped" if local.stop() else "nothing is running")
                return 0
            case "status":
                return _status()
            case _:
                ensure_kafka()
                print(f"Apache Kafka {VERSION} is in {jar_directory()}")
                return 0
    except KafkaToolError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m tools.kafka", description="A local Apache Kafka, to try things.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a cluster, and fetch Apache Kafka first if need be")
    start.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="how many brokers (default: 1)")
    start.add_argument("--sasl", action="store_true", help="clients must authenticate")
    start.add_argument("--tls", action="store_true", help="clients must speak TLS")
    commands.add_parser("stop", help="stop it, and remove its data")
    commands.add_parser("status", help="show what runs, and how to use it; the exit status is 1 if not all of it runs")
    commands.add_parser("fetch", help="only fetch Apache Kafka")
    return parser


def _start(arguments: argparse.Namespace) -> int:
    cluster = local.start(arguments.nodes, arguments.sasl, arguments.tls)
    print(f"Apache Kafka {VERSION} is running; its clients' settings:")
    _print_usage(cluster)
    return 0


def _status() -> int:
    cluster = local.started()
    if cluster is None:
        print("nothing is running")
        return 1
    alive = {id: broker.is_alive() for id, broker in cluster.running().items()}
    for id, broker in cluster.running().items():
        print(f"node {id}: {f'running, process {broker.pid}' if alive[id] else 'not running'}")
    _print_usage(cluster)
    return 0 if all(alive.values()) else 1


def _print_usage(cluster: local.LocalCluster) -> None:
    for line in cluster.usage:
        print(f"    {line}")
    print("python3 -m tools.kafka stop stops it, and removes its data")


if __name__ == "__main__":
    sys.exit(main())
