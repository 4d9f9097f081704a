"""A writer that was idle for so long that the brokers have forgotten its transactional id."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from brokers import wait_for_markers
from processes import wait_until

from shmaccum._core import murmur2
from shmaccum.config import ProducerConfig
from shmaccum.errors import TransactionalIdNotFoundError
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.commit_log import CommitLog
from shmaccum.transactions.coordinator import Identity, PreparedTransaction, TransactionCoordinator, deadline_after
from shmaccum.transactions.writer_id import Writer
from tools.kafka import KafkaCluster


class Death(BaseException):
    """A process ends here."""


@pytest.fixture(scope="module")
def cluster(kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    """Return a broker that forgets ids after some seconds."""
    forgetful = {
        "transactional.id.expiration.ms": 5000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
        "producer.id.expiration.ms": 5000,
        "producer.id.expiration.check.interval.ms": 200,
    }
    cluster = kafka_cluster(overrides=forgetful)
    cluster.start()
    return cluster


class Idle:
    """A writer whose batch 7 is decided, and whose id is forgotten."""

    def __init__(self, cluster: KafkaCluster, client: BrokerClient, config: ProducerConfig, name: str) -> None:
        self.cluster, self.client, self.name = cluster, client, name
        self.committer = BatchCommitter(client, config, Writer(name, f"{name}-", f"{name}-log"))
        self.coordinator = TransactionCoordinator(client, f"{name}-driver", config)
        self.committer.commit(self.committer.plan(), 7, "query", [])
        self.wait_forgotten()

    def wait_forgotten(self) -> None:
        wait_until(self._is_forgotten, "the id is forgotten")

    def _is_forgotten(self) -> bool:
        try:
            self.coordinator.describe(deadline_after(20_000))
        except TransactionalIdNotFoundError:
            return True
        return False

    def forge(self, value: bytes) -> None:
        """Write a record under the writer's key, as anyone can who has the rights to write to the topic."""
        servers: dict[str, Any] = {"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0}
        producer = confluent_kafka.Producer(servers | {"transactional.id": f"mallory of {self.name}"})
        producer.init_transactions(10)
        producer.begin_transaction()
        key = f"{self.name}-driver".encode()
        producer.produce(f"{self.name}-log", value, key, (murmur2(key) & 0x7FFFFFFF) % 16)
        producer.commit_transaction(10)
        wait_for_markers(self.cluster.bootstrap_servers)


@pytest.fixture
def idle(cluster: KafkaCluster, topic: str) -> Iterator[Idle]:
    """Return a writer that was idle for long."""
    config = ProducerConfig.parse(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "max.block.ms": 20_000}
    )
    with BrokerClient(config) as client:
        yield Idle(cluster, client, config, topic)


def test_the_state_of_a_forgotten_id_counts(idle: Idle, caplog: pytest.LogCaptureFixture) -> None:
    """Else a batch that Spark repeats after a week is there twice."""
    plan = idle.committer.plan()
    assert (plan.number, plan.decided) == (2, 7)
    assert "the brokers do not know its transactional.id" in caplog.text


@pytest.mark.parametrize("step", ["init_producer_id", "append", "end"])
def test_a_driver_dies_right_after_it_got_a_new_id(idle: Idle, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = CommitLog if step == "append" else TransactionCoordinator
    proceed = getattr(where, step)

    def die(*args: Any, **more: Any) -> Any:
        if step == "init_producer_id":
            proceed(*args, **more)
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(where, step, die)
        with pytest.raises(Death):
            idle.committer.plan()
    assert isinstance(idle.coordinator.holder(deadline_after(20_000)), Identity)
    assert idle.committer.plan().decided == 7


def state(name: str, **more: object) -> bytes:
    fields = {"plan": 9, "decided_in": 9, "batch": 1000, "source": "query", "transactions": []}
    return zlib.compress(json.dumps({"format": 1, "writer": name, **fields, **more}).encode())


def test_junk_is_skipped(idle: Idle, caplog: pytest.LogCaptureFixture) -> None:
    """Where any state counts, too: what is none does not, and is never an error."""
    foreign = PreparedTransaction("another query's-1", 1, 1, 2, ())
    for junk in (
        b"nonsense",
        zlib.compress(b"{}" * 100)[:-3],
        zlib.compress(b"nonsense"),
        zlib.compress(b"[" * 200_000),
        zlib.compress(bytes(100 << 20), 9),
        state("another"),
        state(idle.name, format=2),
        state(idle.name, plan="9"),
        state(idle.name, plan=1 << 80),
        state(idle.name, transactions=[foreign]),
        state(idle.name, transactions=[foreign._replace(transactional_id=f"{idle.name}-driver")]),
        state(idle.name, transactions=[foreign._replace(transactional_id=f"{idle.name}-1", epoch=1 << 20)]),
    ):
        idle.forge(junk)
    idle.wait_forgotten()
    assert idle.committer.plan().decided == 7
    assert caplog.text.count("is skipped") >= 12
