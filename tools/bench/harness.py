"""What the cases share: processes, brokers, turns, and tables."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import nan
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tools.kafka.cluster import KafkaCluster, ensure_kafka
from tools.kafka.jvm import FOR_LOAD
from tools.kafka.tls import Certificates
from tools.sink import running_sink
from tools.support.processes import adopt_orphans, die_with_parent
from tools.support.proxy import Proxy

Figures = Mapping[str, float]
"""By column."""
Row = tuple[str, Figures]

_FORK: Final = multiprocessing.get_context("fork")
_LABEL: Final = 46
"""Width of a table's first column."""


class Worker:
    """A child process that calls a function with a link to this process, and more arguments."""

    def __init__(self, work: Callable[..., None], *args: object, daemon: bool = True) -> None:
        self.link, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=work, args=(theirs, *args), daemon=daemon)
        self.process.start()
        theirs.close()  # else the end of the process would not be an end of file here


def apart(measure: Callable[..., Figures], *args: object) -> Figures:
    """Measure in a new process, and wait for the end of all processes that it started."""
    worker = Worker(_measure, measure, *args, daemon=False)  # it can have children
    try:
        figures: Figures = worker.link.recv()
    finally:
        worker.process.join()
    return figures


def _measure(link: Connection, measure: Callable[..., Figures], *args: object) -> None:
    adopt_orphans()
    link.send(measure(*args))
    reap()


def reap() -> None:
    """Wait for all children, adopted ones such as senders among them."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


@contextmanager
def broker(
    kind: str, topics: Sequence[str], partitions: int, delay_ms: int = 0, certificates: Certificates | None = None
) -> Iterator[str]:
    """Run a broker in a process of its own, because a process whose threads run must not fork contestants.

    Args:
        kind: ``sink``, `tools.sink`; ``mock``, librdkafka's, always of four partitions; ``apache``, Apache Kafka.
        topics: to create.
        partitions: of each.
        delay_ms: until a response arrives; not from the sink.
        certificates: for TLS, by Apache Kafka alone.
    """
    if kind == "apache":
        ensure_kafka()
    worker = Worker(_serve, kind, topics, partitions, delay_ms, certificates)
    try:
        yield worker.link.recv()
    finally:
        with suppress(OSError):  # it has failed
            worker.link.send(None)
        worker.process.join()


def _serve(
    link: Connection, kind: str, topics: Sequence[str], partitions: int, delay_ms: int, certificates: Certificates
) -> None:
    die_with_parent()
    with ExitStack() as running:
        if kind == "sink":
            servers = running.enter_context(running_sink(partitions))
        elif kind == "mock":
            from confluent_kafka import Producer

            settings = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
            keeper = Producer(settings | {"test.mock.broker.rtt": delay_ms})
            (node,) = keeper.list_topics(timeout=10).brokers.values()
            servers = f"{node.host}:{node.port}"
        else:
            directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
            cluster = KafkaCluster(directory, certificates=certificates, jvm_options=FOR_LOAD)
            if delay_ms:
                (proxied,) = cluster.nodes.values()
                proxied.advertised_port = Proxy(proxied.port, frames=False, delay_s=delay_ms / 1000).port
            running.enter_context(cluster)
            for topic in topics:
                cluster.admin.create_topic(topic, partitions)
            servers = cluster.bootstrap_servers
        link.send(servers)
        link.recv()


def trusting(certificates: Certificates) -> dict[str, str]:
    """Return the settings of our producer for TLS."""
    ca = str(certificates.ca)
    return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": ca}


def take_turns(contestants: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Give each contestant a turn in each round, so that other programs' work hits all alike."""
    turns: dict[str, list[Figures]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in list(contestants)[:: -1 if number % 2 else 1]:
            turns[name].append(contestants[name]())
    return turns


def compared(turns: Mapping[str, Sequence[Figures]], title: str = "") -> Iterator[Row]:
    """Yield the medians of each contestant, and of the first one's ratios to each other in the same round."""
    first, *others = turns
    for name, rounds in turns.items():
        yield title + name, {column: statistics.median(each[column] for each in rounds) for column in rounds[0]}
    for other in others:
        pairs = list(zip(turns[first], turns[other], strict=True))
        ratios = {column: [ours[column] / (theirs[column] or nan) for ours, theirs in pairs] for column in pairs[0][0]}
        for which, choose in (("", statistics.median), (", least", min), (", most", max)):
            yield f"  {first} ÷ {other}{which}", {column: choose(of_column) for column, of_column in ratios.items()}


def print_table(title: str, rows: Iterable[Row]) -> None:
    """Print rows as they come, under the columns of the first one."""
    columns: dict[str, int] = {}
    for label, figures in rows:
        if not columns:
            columns = {column: max(len(column), 8) + 2 for column in figures}
            print(f"{title:{_LABEL}}" + "".join(f"{column:>{width}}" for column, width in columns.items()))
        cells = (f"{_text(figures.get(column)):>{width}}" for column, width in columns.items())
        print(f"{label:{_LABEL}}" + "".join(cells), flush=True)


def _text(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.{2 if figure < 10 else 1 if figure < 100 else 0}f}"
