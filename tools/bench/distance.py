"""Throughput to brokers that answer late, against confluent-kafka, both with their defaults.

The broker is librdkafka's mock cluster, or Apache Kafka behind a proxy, which answers each request after the delay,
over TLS on request. At 0 ms there is no proxy. Producers in many processes send records of 1 kB, random bytes or with
compression JSON, for some seconds into four partitions of each topic. What counts is acknowledged within that time, and
the processor time of all processes involved but the broker's, from start to end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from math import nan
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka

import shmaccum
from tools.bench.harness import Figures, Row, Worker, apart, broker, compared, print_table, reap, take_turns, trusting
from tools.kafka.tls import Certificates, make_certificates

_OURS: Final = "shmaccum"
_CONTESTANTS: Final = (_OURS, "confluent-kafka")
_SIZE: Final = 1000
"""Bytes of a record's value."""
_VIEWS: Final = 2000
"""Different records that are compressed; they repeat behind the largest window of a batch."""
_PAGES: Final = ["products", "articles", "profile", "basket", "help"]
_PARTITIONS: Final = 4
"""The mock cluster's topics have no others."""
_IN_A_ROW: Final = 100
"""Records between two looks at the clock."""


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


def _connect(contestant: str, servers: str, load: Load) -> tuple[Any, Any]:
    """Return a producer that knows its topics, and its method that sends."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": load.compression}
    if contestant == _OURS:
        tls = trusting(load.certificates) if load.certificates else {}
        ours = shmaccum.Producer(settings | tls | {"sender.idle.ms": 0})
        for topic in load.topics:
            ours.partitions_for(topic)
        return ours, ours.send
    if load.certificates:
        settings |= {"security.protocol": "SSL", "ssl.ca.location": str(load.certificates.ca)}
    theirs = confluent_kafka.Producer(settings | {"enable.idempotence": True, "log_level": 0})
    for topic in load.topics:
        theirs.list_topics(topic, timeout=10)
    return theirs, theirs.produce


def _produce(link: Connection, contestant: str, servers: str, number: int, load: Load) -> None:
    count = 0

    def note(error: object, _: object) -> None:
        nonlocal count
        count += error is None

    producer, send = _connect(contestant, servers, load)
    link.send(None)
    link.recv()  # until all are ready
    end = time.monotonic() + load.seconds
    while time.monotonic() < end:
        for index in range(_IN_A_ROW):
            topic, value, partition = load.record(number + index)
            while True:
                try:
                    send(topic, value, partition=partition, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.01)
        number += _IN_A_ROW
        if contestant != _OURS:
            producer.poll(0)
    producer.poll(0)
    link.send(count)
    os._exit(0)  # what is not acknowledged does not count


def _send(contestant: str, servers: str, load: Load) -> Figures:
    """Run the producers; return 10^6 bytes acknowledged in a second, and processor seconds for 10^9 of them."""
    links = [Worker(_produce, contestant, servers, number, load).link for number in range(load.processes)]
    for each in links:
        each.recv()
    for each in links:
        each.send(None)
    sent = sum(each.recv() for each in links) * _SIZE
    reap()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"MB/s": sent / load.seconds / 1e6, "CPU s/GB": (usage.ru_utime + usage.ru_stime) / (sent / 1e9 or nan)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--delays", default="0,2,5,20,100", help="milliseconds until the broker answers")
    parser.add_argument("--topics", type=int, default=1, help="of four partitions each")
    parser.add_argument("--compression", default="none", help="compression.type")
    parser.add_argument("--broker", choices=["mock", "apache"], default="mock")
    parser.add_argument("--tls", action="store_true", help="to Apache Kafka")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)


def run(options: argparse.Namespace) -> None:
    if options.tls and options.broker == "mock":
        raise SystemExit("the mock cluster has no TLS: --tls needs --broker apache")
    topics = [f"distance-{number}" for number in range(options.topics)]
    values = [os.urandom(_SIZE)] if options.compression == "none" else page_views(_VIEWS)
    with tempfile.TemporaryDirectory() as directory:
        certificates = make_certificates(Path(directory, "tls")) if options.tls else None
        load = Load(topics, options.compression, values, options.processes, options.seconds, certificates)
        print_table("a second, and for each byte", _rows(options, load))


def _rows(options: argparse.Namespace, load: Load) -> Iterator[Row]:
    for delay_ms in map(int, options.delays.split(",")):
        with broker(options.broker, load.topics, _PARTITIONS, delay_ms, load.certificates) as servers:
            contestants = {name: partial(apart, _send, name, servers, load) for name in _CONTESTANTS}
            take_turns(contestants, 1)  # a JVM that has just started compiles itself more than it serves
            yield from compared(take_turns(contestants, options.rounds), f"{delay_ms} ms, ")
