"""Measures throughput to brokers that answer late, against confluent-kafka, both with their defaults.

``python -m tools.bench_distance [--delays 0,2,5,20,100] [--broker apache] [--tls] [--compression zstd] [--topics 2]``.
The broker is librdkafka's mock cluster in another process, or Apache Kafka behind a proxy, which answers each request
after the delay, over TLS on request. At 0 ms there is no proxy. Producers in many processes send records of 1 kB,
random bytes or with compression JSON, for some seconds into four partitions of each topic. What counts is acknowledged
within that time, and the processor time of all processes involved but the broker's, from start to end. In each round
each contestant has its turn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer as ConfluentProducer

from shmaccum import Producer
from tools.kafka.cluster import KafkaCluster, ensure_kafka
from tools.kafka.jvm import FOR_LOAD
from tools.kafka.tls import Certificates, make_certificates
from tools.support.processes import adopt_orphans, die_with_parent
from tools.support.proxy import Proxy

_SIZE: Final = 1000
"""Bytes of a record's value."""
_VIEWS: Final = 2000
"""Different records that are compressed; they repeat behind the largest window of a batch."""
_PAGES: Final = ["products", "articles", "profile", "basket", "help"]
_PARTITIONS: Final = 4
"""The mock cluster's topics have no others."""
_IN_A_ROW: Final = 100
"""Records between two looks at the clock."""
_FORK: Final = multiprocessing.get_context("fork")


class Load(NamedTuple):
    """What each producer sends."""

    topics: list[str]
    compression: str
    values: list[bytes]
    processes: int
    seconds: float
    certificates: Certificates | None

    def record(self, number: int) -> tuple[str, bytes, int]:
        """Return topic, value and partition of a record."""
        topic = self.topics[number // _PARTITIONS % len(self.topics)]
        return topic, self.values[number % len(self.values)], number % _PARTITIONS


def page_views(count: int) -> list[bytes]:
    """Return records as a web server would log them, of random visitors, in JSON."""
    pick = random.Random(count)
    return [
        json.dumps(
            {
                "event": pick.choice(["view", "click", "search", "purchase"]),
                "at": 1_700_000_000_000 + 37 * number,
                "user": pick.randrange(10**9),
                "session": f"{pick.getrandbits(128):032x}",
                "page": f"/{pick.choice(_PAGES)}/{pick.randrange(10**5)}",
                "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Safari/537.36",
                "address": ".".join(str(pick.randrange(256)) for _ in range(4)),
                "seen": [pick.randrange(10**6) for _ in range(80)],
            }
        )
        .ljust(_SIZE)[:_SIZE]
        .encode()
        for number in range(count)
    ]


class Turn(NamedTuple):
    """What a contestant's turn gave."""

    megabytes: float
    """10^6 bytes acknowledged in a second."""
    cpu_s: float
    """Processor seconds for each 10^9 bytes acknowledged."""


class _Acknowledged:
    """Counts acknowledged records."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: object, _: object) -> None:
        self.count += error is None


def _send_by_shmaccum(servers: str, number: int, load: Load, link: Connection) -> int:
    acknowledged = _Acknowledged()
    settings = {"bootstrap.servers": servers, "sender.idle.ms": 0, "compression.type": load.compression}
    if load.certificates:
        settings |= {"security.protocol": "SSL", "ssl.truststore.location": str(load.certificates.ca)}
        settings["ssl.truststore.type"] = "PEM"
    producer = Producer(settings)
    for topic in load.topics:
        producer.partitions_for(topic)
    end = _agreed_end(link, load.seconds)
    while time.monotonic() < end:
        for index in range(_IN_A_ROW):
            topic, value, partition = load.record(number + index)
            producer.send(topic, value, partition=partition, on_delivery=acknowledged.note)
        number += _IN_A_ROW
    producer.poll(0)
    return acknowledged.count


def _send_by_confluent(servers: str, number: int, load: Load, link: Connection) -> int:
    acknowledged = _Acknowledged()
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
    if load.certificates:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": str(load.certificates.ca)}
    producer = ConfluentProducer(settings | {"compression.type": load.compression})
    for topic in load.topics:
        producer.list_topics(topic, timeout=10)
    end = _agreed_end(link, load.seconds)
    while time.monotonic() < end:
        for index in range(_IN_A_ROW):
            topic, value, partition = load.record(number + index)
            while True:
                try:
                    producer.produce(topic, value, partition=partition, on_delivery=acknowledged.note)
                    break
                except BufferError:
                    producer.poll(0.01)
        number += _IN_A_ROW
        producer.poll(0)
    return acknowledged.count


_CONTESTANTS: Final[dict[str, Callable[[str, int, Load, Connection], int]]] = {
    "shmaccum": _send_by_shmaccum,
    "confluent-kafka": _send_by_confluent,
}


def _agreed_end(link: Connection, seconds: float) -> float:
    """Wait until all are ready; return when to stop."""
    link.send(None)
    link.recv()
    return time.monotonic() + seconds


def _produce(contestant: str, servers: str, number: int, load: Load, link: Connection) -> None:
    link.send(_CONTESTANTS[contestant](servers, number, load, link))
    os._exit(0)  # what is not acknowledged does not count


def _take_turn(contestant: str, servers: str, load: Load, link: Connection) -> None:
    """Run the producers, and wait for all processes that they have started, too."""
    adopt_orphans()
    links, workers = [], []
    for number in range(load.processes):
        ours, theirs = _FORK.Pipe()
        worker = _FORK.Process(target=_produce, args=(contestant, servers, number, load, theirs))
        worker.start()
        links.append(ours)
        workers.append(worker)
    for each in links:
        each.recv()
    for each in links:
        each.send(None)
    count = sum(each.recv() for each in links)
    for worker in workers:
        worker.join()
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    sent = count * _SIZE
    link.send(Turn(sent / load.seconds / 1e6, (usage.ru_utime + usage.ru_stime) / (sent / 1e9)))


def _be_broker(kind: str, delay_ms: int, load: Load, link: Connection) -> None:
    die_with_parent()
    with tempfile.TemporaryDirectory() as directory:
        serve = _be_apache_kafka(Path(directory), delay_ms, load) if kind == "apache" else _be_mock_cluster(delay_ms)
        with serve as servers:
            link.send(servers)
            link.recv()
    os._exit(0)


@contextmanager
def _be_apache_kafka(directory: Path, delay_ms: int, load: Load) -> Iterator[str]:
    cluster = KafkaCluster(directory, certificates=load.certificates, jvm_options=FOR_LOAD)
    (node,) = cluster.nodes.values()
    if delay_ms:
        node.advertised_port = Proxy(node.port, frames=False, delay_s=delay_ms / 1000).port
    with cluster:
        for topic in load.topics:
            cluster.admin.create_topic(topic, _PARTITIONS)
        yield cluster.bootstrap_servers


@contextmanager
def _be_mock_cluster(delay_ms: int) -> Iterator[str]:
    settings: dict[str, Any] = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
    keeper = ConfluentProducer(settings | {"test.mock.broker.rtt": delay_ms})
    brokers = keeper.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


@contextmanager
def _broker(kind: str, delay_ms: int, load: Load) -> Iterator[str]:
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_be_broker, args=(kind, delay_ms, load, theirs))
    process.start()
    theirs.close()  # so that its end is one here
    try:
        yield ours.recv()
        ours.send(None)
    finally:
        process.join()


def measure(contestant: str, broker: str, delay_ms: int, load: Load) -> Turn:
    """Give a contestant its turn."""
    with _broker(broker, delay_ms, load) as servers:
        ours, theirs = _FORK.Pipe()
        turn = _FORK.Process(target=_take_turn, args=(contestant, servers, load, theirs))
        turn.start()
        result: Turn = ours.recv()
        turn.join()
    return result


def main() -> int:
    """Run the comparison; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_distance", description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False
    )
    parser.add_argument("--delays", default="0,2,5,20,100", help="milliseconds until the broker answers")
    parser.add_argument("--topics", type=int, default=1, help="of four partitions each")
    parser.add_argument("--compression", default="none", help="compression.type")
    parser.add_argument("--broker", choices=["mock", "apache"], default="mock")
    parser.add_argument("--tls", action="store_true", help="to Apache Kafka")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    topics = [f"distance-{number}" for number in range(options.topics)]
    values = [os.urandom(_SIZE)] if options.compression == "none" else page_views(_VIEWS)
    if options.broker == "apache":
        ensure_kafka()
    elif options.tls:
        parser.error("the mock cluster has no TLS: --tls needs --broker apache")
    with tempfile.TemporaryDirectory() as directory:
        certificates = make_certificates(Path(directory, "tls")) if options.tls else None
        load = Load(topics, options.compression, values, options.processes, options.seconds, certificates)
        _compare(options, load)
    return 0


def _compare(options: argparse.Namespace, load: Load) -> None:
    """Give all their turns, and print a line for each delay."""
    print("delay      confluent-kafka            shmaccum         times the bytes   of its processor time a byte")
    for delay_ms in map(int, options.delays.split(",")):
        turns: dict[str, list[Turn]] = {name: [] for name in _CONTESTANTS}
        for number in range(options.rounds):
            for name in sorted(_CONTESTANTS, reverse=number % 2 == 1):
                turns[name].append(measure(name, options.broker, delay_ms, load))
        pairs = list(zip(turns["shmaccum"], turns["confluent-kafka"], strict=True))
        theirs, ours = (statistics.median(turn.megabytes for turn in turns[name]) for name in sorted(turns))
        faster = [mine.megabytes / other.megabytes for mine, other in pairs]
        cheaper = statistics.median(mine.cpu_s / other.cpu_s for mine, other in pairs)
        spread = f"({min(faster):.2f} to {max(faster):.2f})"
        print(
            f"{delay_ms:4} ms {theirs:12,.0f} MB/s {ours:14,.0f} MB/s "
            f"{statistics.median(faster):10.2f} {spread:16} {cheaper:10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
