"""What the runs of ``--exactly-once`` share: the broker, the options, the check of what is visible, the report."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.kafka import KafkaCluster, ensure_kafka

TOPIC: Final = "exactly-once"
_PARTITIONS: Final = 6


@contextmanager
def broker(transaction_version: int) -> Iterator[tuple[KafkaCluster, Path]]:
    """Start an Apache Kafka with the topic; yield it and a directory, which both go in the end.

    Args:
        transaction_version: of the protocol.
    """
    ensure_kafka()
    directory = Path(tempfile.mkdtemp(prefix="shmaccum-stress-"))
    try:
        with KafkaCluster(directory / "kafka", features={"transaction.version": transaction_version}) as cluster:
            cluster.admin.create_topic(TOPIC, partitions=_PARTITIONS)
            yield cluster, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_options(servers: str, name: str) -> dict[str, str]:
    """Return the data source's options, with names in lower case.

    Args:
        servers: ``bootstrap.servers``.
        name: of the slab; it begins all transactional ids, too.
    """
    return {
        "exactlyonce": "true",
        "kafka.transactional.id": name,
        "kafka.bootstrap.servers": servers,
        "kafka.shmaccum.name": name,
        "kafka.buffer.memory": str(2 << 20),
        "kafka.sender.idle.ms": "2000",
    }


def check(servers: str, transactional_id: str, expected: Set[bytes]) -> list[str]:
    """Return what is wrong with what a ``read_committed`` consumer sees, and with what is left open.

    Args:
        servers: ``bootstrap.servers``.
        transactional_id: begins all transactional ids.
        expected: all values, of which each must be there once.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    from shmaccum.config import ProducerConfig
    from shmaccum.transactions.administration import Transactions
    from shmaccum.transactions.broker_client import BrokerClient
    from shmaccum.transactions.coordinator import deadline_after

    wrong = []
    config = ProducerConfig.parse({"bootstrap.servers": servers})
    with BrokerClient(config) as client:
        transactions = Transactions(client, config)
        deadline = time.monotonic() + 60
        while transactions.find(transactional_id, ("PrepareCommit", "PrepareAbort"), deadline_after(30_000)):
            if time.monotonic() > deadline:
                return ["transactions have not ended within a minute"]
            time.sleep(0.1)
        left = transactions.find(transactional_id, ("Ongoing",), deadline_after(30_000))
        wrong += [f"transactional.id {each.transactional_id} is open" for each in left]
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(_PARTITIONS)])
    seen: Counter[bytes] = Counter()
    unfinished = _PARTITIONS
    while unfinished:
        message = consumer.poll(30)
        if message is None:
            return [*wrong, f"{unfinished} partitions cannot be read to their end"]
        if message.error() is None:
            seen[message.value() or b""] += 1
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unfinished -= 1
    consumer.close()
    lost = expected - seen.keys()
    twice = [value for value, count in seen.items() if count > 1]
    strange = seen.keys() - expected
    for what, values in {"missing": lost, "there twice": twice, "never written": strange}.items():
        if values:
            wrong.append(f"{len(values):,} records are {what}, such as {min(values)!r}")
    print(f"  {sum(seen.values()):,} records are visible, of {len(expected):,}")
    return wrong


@dataclass(frozen=True)
class Found:
    """Result of a run.

    Attributes:
        counts: what was done, and how often.
        errors: that were raised on the way, and how often.
        wrong: a line for each violation.
        seconds: how long it took.
    """

    counts: Mapping[str, int]
    errors: Mapping[str, int]
    wrong: Sequence[str]
    seconds: float


def report(options: argparse.Namespace, found: Found) -> int:
    """Print the result, and write it as JSON if the options say so; return the exit status."""
    for counts in (found.counts, found.errors):
        for what, count in sorted(counts.items()):
            print(f"  {count:8,} {what}")
    print(f"  seed {options.seed}, {found.seconds:.0f} s")
    for each in found.wrong:
        print(f"  WRONG: {each}")
    if options.json is not None:
        content = {
            "held": not found.wrong,
            "problems": found.wrong,
            "counts": found.counts,
            "errors": found.errors,
            "seed": options.seed,
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 1 if found.wrong else 0
