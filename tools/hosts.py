"""Predicts what a host can send, and where that ends: producers, senders, memory, or the network.

``python -m tools.hosts [--draw docs]`` measures costs, compares the model with 1 to 16 producers here, and prints the
model for hosts of 16 to 128 cores. The model is a closed queueing network, in two steps:

* The producers of a shard. Each alternates between work of its own and the lock of a partition: a delay, and a
  first-come first-served server for each of the partitions. Mean value analysis (Reiser and Lavenberg, 1980) gives the
  rate of n producers, exactly. The time under the lock comes from two processes that append to one partition,
  compared with one process, while no sender runs.
* What follows the producers: as many senders as shards, each with one thread for its brokers and up to eight for
  compression; the cores, which all share; the network; and memory, which is taken from the append until the broker has
  answered. Batches wait in memory, so the slowest of these sets the rate.

Costs are processor time for each byte of a record, of eight processes that send 1 kB records to eight partitions of an
acknowledging sink, with growing batches. TLS is measured with two processes, into Apache Kafka. The model's cores are
as fast as those here.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from shmaccum import Producer
from shmaccum.config.rules import CORES_OF_A_SHARD
from shmaccum.observe.report import report
from shmaccum.shm.names import slab_names
from tools.benchmark.brokers import TLS, Broker, authority
from tools.benchmark.cpu import clock
from tools.benchmark.load import make_values
from tools.benchmark.svg import COLOURS, Line, lines
from tools.sink import running_sink
from tools.support.arguments import command_line
from tools.support.processes import Children, adopt_orphans, descendants

_SIZE: Final = 1000
_SMALL: Final = 100
_PARTITIONS: Final = 8
_SECONDS: Final = 3.0
_LOCKED_RECORDS: Final = 400_000
_COMPRESSING: Final = 8
"""Most threads of a sender that compress."""
_ROUND_TRIP_S: Final = 0.002
_MEMORY: Final = 256 << 20
_BUSY: Final = 8
"""Producers whose costs count: they keep all cores busy, which makes each byte cost up to half as much again."""
_HOSTS: Final = (16, 32, 64, 128)
_SHARES: Final = (1.0, 0.1)
"""Of a producer's time that it spends in `send`: all, and what a program with work of its own may."""
_LINKS: Final = (10, 25, 100)
"""Gbit/s."""
_OF_A_LINK: Final = 0.94
"""The part of a link's bits that are a segment's payload, with frames of 1,500 bytes."""


class Costs(NamedTuple):
    """What a byte of a record costs; seconds of processor time.

    Attributes:
        producer: of the process that sends.
        loop: of the sender's thread for the brokers.
        threads: of the sender's other threads.
        broker: of the broker, where it shares the cores.
        wire: bytes sent.
    """

    producer: float
    loop: float
    threads: float
    broker: float
    wire: float


class Lock(NamedTuple):
    """What an append of a small record to an open batch takes, in seconds.

    Attributes:
        total: in all.
        held: under the partition's lock; together with what a process loses because another one had it.
    """

    total: float
    held: float


class Prediction(NamedTuple):
    """A rate in bytes a second, and what bounds it."""

    rate: float
    bound: str


def producers_rate(producers: int, partitions: int, lock: Lock, own: float) -> float:
    """Return the appends a second of n producers.

    Args:
        producers: how many, each on a core of its own.
        partitions: among which their records are spread evenly.
        lock: costs of an append.
        own: seconds of other work for each record.
    """
    think = own + lock.total - lock.held
    queued = 0.0  # at each partition's lock, as seen by one who arrives
    for present in range(1, producers + 1):
        wait = lock.held * (1 + queued)
        rate = present / (think + wait)
        queued = rate / partitions * wait
    return rate


def predict(
    cores: int, shards: int, link: float, costs: Costs, lock: Lock, *, share: float, producers: int
) -> Prediction:
    """Return what a host can send.

    Args:
        cores: of the host.
        shards: senders.
        link: Gbit/s; infinite for none.
        costs: of a byte.
        lock: costs of an append.
        share: of a producer's time that it sends.
        producers: how many, on all cores.
    """
    alone = costs.producer * _SIZE
    in_a_shard = max(1, producers // shards)
    own = alone / share - lock.total  # the rest of a record's cost, and other work, is outside the lock
    rate = shards * producers_rate(in_a_shard, _PARTITIONS, lock, own) * _SIZE
    sender = costs.loop + costs.threads
    bounds = {
        "producers": rate,
        "senders": shards / max(costs.loop, costs.threads / _COMPRESSING),
        "cores": cores / (costs.producer / share + sender + costs.broker),
        "memory": _MEMORY / _ROUND_TRIP_S,
        "network": link * 1e9 / 8 * _OF_A_LINK / costs.wire,
    }
    bound = min(bounds, key=bounds.__getitem__)
    return Prediction(bounds[bound], bound)


class _Worker:
    """A child process that calls a function with a link to this process, and more arguments."""

    def __init__(self, work: Callable[..., None], *args: object) -> None:
        fork = multiprocessing.get_context("fork")
        self.link, theirs = fork.Pipe()
        self.process = fork.Process(target=work, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()  # else the end of the process would not be an end of file here

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.link.close()


def _spent(name: str, producers: list[int], brokers: list[int]) -> tuple[float, tuple[float, ...]]:
    """Return the bytes of records that a slab's sender has had acknowledged, and what they have cost, as `Costs`."""
    seen = report(name)
    sender, metrics = seen.sender.pid, seen.metrics
    assert sender is not None
    loop = int(Path(f"/proc/{sender}/task/{sender}/schedstat").read_text().split()[0]) / 1e9  # of its main thread
    own = (sum(map(clock, producers)), loop, clock(sender) - loop, sum(map(clock, brokers)))
    return metrics["record-send-total"] * _SIZE, (*own, metrics["byte-total"])


def _send(link: Connection, settings: Mapping[str, object], values: list[bytes]) -> None:
    producer = Producer(settings)
    producer.partitions_for("hosts")
    link.send(producer._slab.name)
    for number in itertools.count():
        producer.send("hosts", values[number % len(values)], partition=number % _PARTITIONS)


def measure(
    producers: int, settings: Mapping[str, object], values: list[bytes], broker: list[int]
) -> tuple[float, Costs]:
    """Let producers send for some seconds; return the bytes acknowledged in a second, and costs of a byte."""
    workers = [_Worker(_send, settings, values) for _ in range(producers)]
    (name,) = {worker.link.recv() for worker in workers}
    time.sleep(_SECONDS / 2)
    pids = [worker.process.pid for worker in workers if worker.process.pid is not None]
    brokers = broker + [pid for each in broker for pid in descendants(each)]
    begun, (sent, before) = time.monotonic(), _spent(name, pids, brokers)
    time.sleep(_SECONDS)
    passed, (now, after) = time.monotonic() - begun, _spent(name, pids, brokers)
    for worker in workers:
        worker.kill()
    while name in slab_names():  # its sender sends the rest, and leaves
        time.sleep(0.1)
    costs = Costs(*((later - earlier) / (now - sent) for earlier, later in zip(before, after, strict=True)))
    return (now - sent) / passed, costs


def _append(link: Connection, settings: Mapping[str, object]) -> None:
    producer = Producer(settings)
    producer.partitions_for("hosts")
    value, send = bytes(_SMALL), producer.send
    for _ in range(1000):
        send("hosts", value, partition=0)
    link.send(report(producer._slab.name).sender.pid)
    link.recv()
    begun = time.monotonic()
    for _ in range(_LOCKED_RECORDS):
        send("hosts", value, partition=0)
    link.send((time.monotonic() - begun) / _LOCKED_RECORDS)
    link.recv()


def measure_lock(servers: str) -> Lock:
    """Compare two processes that append to one partition with one, while the sender is stopped."""
    name = f"hosts-{os.getpid()}"
    settings = {"bootstrap.servers": servers, "shmaccum.name": name, "buffer.memory": 1 << 30, "batch.max.bytes": 16384}
    seconds = []
    for processes in (1, 2):
        workers = [_Worker(_append, settings) for _ in range(processes)]
        (sender,) = {worker.link.recv() for worker in workers}
        os.kill(sender, signal.SIGSTOP)
        for worker in workers:
            worker.link.send(None)
        seconds.append(statistics.mean(worker.link.recv() for worker in workers))
        os.kill(sender, signal.SIGCONT)
        for worker in workers:
            worker.kill()
        while report(name).memory.used:
            time.sleep(0.1)
    alone, together = seconds
    # Mean value analysis of two: together = alone + held * held / alone.
    return Lock(alone, min(alone, max(0.0, (together - alone) * alone) ** 0.5))


def _measured() -> tuple[Lock, dict[str, Costs]]:
    """Measure the lock, and costs by load; print them, and the model beside what was measured here."""
    loads: dict[str, Costs] = {}
    here = len(os.sched_getaffinity(0))
    with running_sink(_PARTITIONS) as servers:
        sink = descendants(os.getpid())
        lock = measure_lock(servers)
        print(f"an append of {_SMALL} bytes: {lock.total * 1e9:.0f} ns, {lock.held * 1e9:.0f} of them under the lock")
        plain = {"bootstrap.servers": servers, "sender.idle.ms": 0}
        rates = {count: measure(count, plain, [os.urandom(_SIZE)], sink) for count in (1, 2, 4, 8, 16)}
        loads["plain"] = rates[_BUSY][1]
        loads["zstd"] = measure(_BUSY, plain | {"compression.type": "zstd"}, make_values(2000, _SIZE), sink)[1]
    print(f"\n{here} cores, with the broker on them:\nproducers  measured  predicted  bound")
    for count, (rate, _) in rates.items():
        model = predict(here, 1, math.inf, loads["plain"], lock, share=1, producers=min(count, here))
        print(f"{count:9} {rate / 1e6:9,.0f} {model.rate / 1e6:10,.0f}  {model.bound}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        children = Children(directory / "messages", judge_inherited=False)
        broker = Broker(TLS, children, directory / TLS)
        broker.call("create_topic", "hosts", _PARTITIONS)
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority(directory, TLS)}
        settings = trust | {"security.protocol": "SSL", "bootstrap.servers": broker.servers, "sender.idle.ms": 0}
        loads["TLS"] = measure(2, settings, [os.urandom(_SIZE)], [])[1]
        children.kill_all()
    print("\nns of a core for 1 kB    producer  sender's loop  its threads  bytes sent")
    for name, costs in loads.items():
        own = "".join(f"{seconds * 1e12:{width}.0f}" for seconds, width in zip(costs[:3], (11, 15, 13), strict=True))
        print(f"{name:22}{own} {costs.wire * _SIZE:11.0f}")
    return lock, {name: costs._replace(broker=0.0) for name, costs in loads.items()}


def main() -> None:
    """Measure, compare and predict."""
    parser = command_line("hosts", __doc__)
    parser.add_argument("--draw", type=Path, metavar="DIRECTORY", help="write performance-hosts.svg there")
    options = parser.parse_args()
    adopt_orphans()
    lock, loads = _measured()
    caps = ", ".join(f"{link} Gbit/s {link * 125 * _OF_A_LINK:,.0f}" for link in _LINKS)
    print(
        f"\nMB/s of records of {_SIZE} bytes; {_MEMORY >> 20} MiB; brokers elsewhere that answer after 2 ms.\n"
        f"Networks carry at most {caps}."
    )
    print("load   sends  cores  one shard, and what bounds it       auto, the same")
    drawn: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, costs), share, cores in itertools.product(loads.items(), _SHARES, _HOSTS):
        one, auto = (
            predict(cores, shards, _LINKS[-1], costs, lock, share=share, producers=cores)
            for shards in (1, cores // CORES_OF_A_SHARD)
        )
        row = "  ".join(f"{each.rate / 1e6:10,.0f} {each.bound:15}" for each in (one, auto))
        print(f"{name:6} {share:5.0%} {cores:6} {row}")
        if share == _SHARES[-1]:
            drawn[f"{name}, one shard"][str(cores)] = one.rate / 1e6
            drawn[f"{name}, auto"][str(cores)] = auto.rate / 1e6
    if options.draw:
        all_lines = [
            Line(label, points, COLOURS[order // 2], dashed="one" in label)
            for order, (label, points) in enumerate(drawn.items())
        ]
        title = f"What a host can send, whose producers spend {_SHARES[-1]:.0%} of their time in send: the model"
        (options.draw / "performance-hosts.svg").write_text(lines(title, "MB/s", "cores; 100 Gbit/s", all_lines))


if __name__ == "__main__":
    main()
