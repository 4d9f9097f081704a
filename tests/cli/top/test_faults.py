"""Every fault is named in the verdict while it lasts, and no longer: with Apache Kafka and deaths of processes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import pytest
from brokers import MakeCluster, started_behind_proxy
from faults import stopped_with
from processes import PATIENCE_S, Child, wait_until

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import BufferExhaustedError, KafkaError
from shmaccum.observe.report import report
from shmaccum.observe.verdict import verdict
from shmaccum.shm import names
from shmaccum.shm.lifecycle import look
from tools.kafka import KafkaCluster
from tools.kafka.settings import USERS
from tools.support.proxy import Proxy

PAUSE_S = 0.002


@dataclass
class Scene:
    """A broker behind a proxy, a slab whose producer goes on sending, and what was said of it."""

    cluster: KafkaCluster
    proxy: Proxy
    slab: str
    settings: dict[str, object]

    @property
    def sender(self) -> int:
        """The sender's process id."""
        with look(self.slab) as view:
            return view.sender().pid or 0

    def await_verdict(self, pattern: str) -> None:
        """Wait until the verdict matches."""
        began, said = time.monotonic(), [""]
        while not re.fullmatch(pattern, said[-1]):
            assert time.monotonic() < began + PATIENCE_S, f"not {pattern}, but {said[-5:]}"
            time.sleep(PAUSE_S)
            said.append(verdict(report(self.slab)))


Act = Callable[[Scene], object]


def send_on(link: Connection, settings: dict[str, object], topic: str) -> None:
    """Send records until told to stop; their errors do not matter here."""
    with Producer(settings) as producer:
        producer.send(topic, b"first", partition=0).get(timeout=60)
        link.send("sending")
        while not link.poll(PAUSE_S):
            for partition in range(2):
                try:
                    producer.send(topic, b"x" * 500, partition=partition)
                except BufferExhaustedError:
                    time.sleep(PAUSE_S)
                except KafkaError:
                    time.sleep(0.1)


@pytest.fixture(scope="module")
def scene(kafka_cluster: MakeCluster) -> Iterator[Scene]:
    """Return the scene of all faults here, each of which ends before the next."""
    cluster, slab, topic = kafka_cluster(sasl=True), f"faults{os.getpid()}", "faults"
    with started_behind_proxy(cluster) as proxy:
        cluster.admin.create_topic(topic, partitions=2)
        cluster.admin.allow("alice", topic)
        settings: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": cluster.security_protocol,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
            "shmaccum.name": slab,
            "sender.idle.ms": 1000,
            "buffer.memory": 1 << 20,
            "max.block.ms": 120_000,
            "delivery.timeout.ms": 300_000,
            "request.timeout.ms": 100_000,
        }
        child = Child(send_on, (settings, topic), "clean")
        try:
            child.ready("sending")
            yield Scene(cluster, proxy, slab, settings)
            child.finish()
        finally:
            print(child.end())
        wait_until(lambda: slab not in names.slab_names(), "the sender leaves, and the slab with it")


FULL = r"(memory full for \d+ s: )?"
FAULTS: dict[str, tuple[Act, Act, *tuple[str, ...]]] = {
    "broker killed": (
        lambda of: of.cluster.nodes[1].kill(),
        lambda of: of.cluster.nodes[1].start(),
        r"(memory full for \d+ m?s: )?broker 1 unreachable for \d+ m?s: 2 partitions waiting",
    ),
    "broker slow": (
        lambda of: of.proxy.pause(),
        lambda of: of.proxy.resume(),
        r"broker 1 has not answered for \d+ m?s",
        r"memory full for \d+ s: broker 1 has not answered for \d+ s",
    ),
    "throttled by a quota": (
        lambda of: of.cluster.admin.throttle(20_000),
        lambda of: of.cluster.admin.throttle(None),
        FULL + r"broker 1 throttles us by a quota(, for \d+ m?s more)?",
    ),
    "sender killed": (
        lambda of: os.kill(of.sender, signal.SIGKILL),
        lambda of: None,
        r"the sender was replaced \d+ m?s ago, by process \d+|no sender: process \d+ has died.*",
    ),
}
"""How each is brought about and ended, and what the verdict is meanwhile, one after the other."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_while_it_lasts(scene: Scene, fault: str) -> None:
    begin, end, *patterns = FAULTS[fault]
    scene.await_verdict("healthy")
    begin(scene)
    for pattern in patterns:
        scene.await_verdict(pattern)
    end(scene)
    scene.await_verdict("healthy")


def test_a_stopped_producer_is_named_while_it_is_stopped(scene: Scene) -> None:
    with Producer(scene.settings) as producer:
        queues = producer._accumulator.state.map.queues.items()
        queue = next(each for key, each in queues if isinstance(key, TopicPartition) and key.partition == 1)
        with stopped_with(queue.lock):
            scene.await_verdict(FULL + r"producer \d+ .* is stopped, and holds partition .*-1")
        scene.await_verdict("healthy")
