"""A host under observation: Apache Kafka, two producers, exporter and Prometheus; then trouble of several kinds."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from shmaccum import Producer
from shmaccum.errors import KafkaError
from shmaccum.shm.lifecycle import look
from tools.kafka import KafkaCluster
from tools.monitoring.prometheus import Prometheus, running

SLAB: Final = "orders"
TOPICS: Final = ("orders", "clicks")
_LARGEST: Final = 20_000
"""Bytes of a batch that the broker takes."""
_QUOTA: Final = 100_000
_START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What happened, and the Prometheus that saw it, which still runs. Times are seconds since 1970.

    Attributes:
        exporter: where its metrics are.
    """

    prometheus: Prometheus
    begin: float
    end: float
    exporter: str


@contextmanager
def scene(directory: Path, rules: Path, pace: float = 1.0) -> Iterator[Scene]:
    """Play the scene with some rules, which takes about a minute at pace 1, by which most times are multiplied."""
    slab = f"{SLAB}-{os.getpid()}"
    with ExitStack() as cleanup:
        cluster = cleanup.enter_context(KafkaCluster(directory / "kafka", overrides={"message.max.bytes": _LARGEST}))
        for topic in TOPICS:
            cluster.admin.create_topic(topic, 2)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "shmaccum.name": slab,
            "buffer.memory": 2 << 20,
            "batch.size": 16_384,
            "linger.ms": 10,
            "compression.type": "lz4",
            "sender.idle.ms": 1_000,
            "sender.log.file": str(directory / "sender.log"),
            "request.timeout.ms": 2_000,
            "delivery.timeout.ms": 60_000,
            "max.block.ms": 30_000,
        }
        target = cleanup.enter_context(_exporter(slab))
        prometheus = cleanup.enter_context(running(directory / "prometheus", target, rules))
        cleanup.enter_context(_producers(settings))
        begin = time.time()
        node = cluster.nodes[1]

        def step(do: Callable[[], object], seconds: float, at_least: float = 0.0) -> None:
            do()
            time.sleep(max(seconds * pace, at_least))

        time.sleep(12 * pace)
        step(node.kill, 10, at_least=5)
        step(node.start, 10)
        step(lambda: _signal_sender(slab, signal.SIGSTOP), 6, at_least=6)
        step(lambda: _signal_sender(slab, signal.SIGCONT), 6)
        step(lambda: cluster.admin.throttle(_QUOTA), 8)
        step(lambda: cluster.admin.throttle(None), 4)
        yield Scene(prometheus, begin, time.time(), f"http://{target}/metrics")


@contextmanager
def _exporter(slab: str) -> Iterator[str]:
    """Run the exporter; yield its host and port."""
    command = [sys.executable, "-m", "shmaccum", "exporter", slab, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://([^/]+)/metrics", process.stdout.readline())
            if found is None:
                raise ValueError("the exporter does not start")
            yield found[1]
        finally:
            process.terminate()


@contextmanager
def _producers(settings: dict[str, object]) -> Iterator[None]:
    """Run a producer for each topic, until the block ends."""
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    processes = [context.Process(target=_produce, args=(settings, topic, over)) for topic in TOPICS]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        over.set()
        for process in processes:
            process.join(_START_S)
            process.kill()


def _produce(settings: dict[str, object], topic: str, over: Event) -> None:
    """Send some hundred records a second, and now and then one that the broker refuses."""
    with Producer(settings) as producer:
        number = 0
        while not over.wait(0.05):
            for _ in range(20 if topic == "orders" else 40):
                producer.send(topic, os.urandom(150) + b"x" * 150, key=str(number))
                number += 1
            if number % 4_000 == 0:
                with suppress(KafkaError):
                    producer.send(topic, os.urandom(2 * _LARGEST), on_delivery=lambda *_: None)


def _signal_sender(slab: str, number: int) -> None:
    with look(slab) as view:
        pid = view.sender().pid
    if pid is not None:
        os.kill(pid, number)
