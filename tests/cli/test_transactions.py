"""``shmaccum transactions`` against Apache Kafka: what is open, and its end."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest
from brokers import consume_values, wait_for_markers
from fixture_types import Capture, MonkeyPatch
from producers import wait_until_gone

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.config import ProducerConfig
from shmaccum.errors import InvalidTxnStateError
from shmaccum.observe.wording import count
from shmaccum.transactions.administration import TransactionEnds
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.commit_log import TOPIC
from shmaccum.transactions.writer_id import Writer
from tools.kafka import KafkaCluster


@pytest.fixture
def producer(kafka: KafkaCluster, slab_name: str, topic: str) -> Iterator[Producer]:
    """Return a producer in a transaction, with a record that is sent."""
    kafka.admin.create_topic(topic)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "shmaccum.name": slab_name, "sender.idle.ms": 100}
    with Producer(settings | {"transactional.id": slab_name}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        yield producer
    wait_until_gone(slab_name)


def transactions(kafka: KafkaCluster, *arguments: str) -> int:
    return main(["transactions", *arguments, "-X", f"bootstrap.servers={kafka.bootstrap_servers}"])


def test_open_transactions_are_listed_and_aborted(
    kafka: KafkaCluster, producer: Producer, slab_name: str, topic: str, capsys: Capture
) -> None:
    """Wherever the ids stand, such as ``xargs`` puts them; one without an open transaction keeps no other open."""
    assert transactions(kafka, "list", "--prefix", slab_name, "--state", "Ongoing", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["transactional_id"], listed["state"], listed["timeout_ms"]) == (slab_name, "Ongoing", 60_000)
    assert listed["partitions"] == [f"{topic}-0"]
    assert transactions(kafka, "list", "--prefix", slab_name) == 0
    assert f"{topic}-0" in capsys.readouterr().out
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    assert main(["transactions", "abort", "-X", servers, f"{slab_name}-unknown", slab_name]) == 1
    out, err = capsys.readouterr()
    assert f"aborted the transaction of {slab_name}, open for" in out
    assert err == f"shmaccum transactions: no coordinator knows transactional.id '{slab_name}-unknown'\n"
    assert transactions(kafka, "list", "--prefix", slab_name, "--state", "Ongoing") == 0
    assert capsys.readouterr().out == "no transactions\n"
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    assert consume_values(reading, topic) == {0: []}
    assert transactions(kafka, "abort", slab_name, f"{slab_name}-unknown") == 1
    err = capsys.readouterr().err
    assert "has no open transaction" in err
    assert "no coordinator knows" in err, "one without a transaction keeps no other from its turn"
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()


@pytest.mark.parametrize("is_decided", [True, False])
def test_what_a_dead_driver_has_left_is_recovered(
    kafka: KafkaCluster, slab_name: str, topic: str, is_decided: bool, capsys: Capture, monkeypatch: MonkeyPatch
) -> None:
    """Amid its commit: what counts becomes visible; before it decided: nothing does. A failed task never counts."""
    kafka.admin.create_topic(topic)
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    config = ProducerConfig.parse(
        servers | {"shmaccum.name": slab_name, "sender.idle.ms": 100, "transactional.id": slab_name}
    )
    log = TOPIC if is_decided else f"{slab_name}-log"
    writer = Writer(f"job of {slab_name}", f"{slab_name}-", log, writes_once=True)
    recover = ("recover", f"{slab_name}-", *(() if is_decided else ("--commit-log", log)))
    with BrokerClient(config) as client, Producer(config) as producer:
        committer = BatchCommitter(client, config, writer)
        plan = committer.plan()
        written = []
        for task in (b"failed", b"first", b"second"):
            producer.transactions.init(f"{slab_name}-{task.decode()}")
            producer.transactions.begin()
            producer.send(topic, task)
            written.append(producer.transactions.prepare())
        if is_decided:
            monkeypatch.setattr(TransactionEnds, "end", die)
            with pytest.raises(RuntimeError, match="dies here"):
                committer.commit(plan, 0, "", written[1:])
            monkeypatch.undo()
    assert transactions(kafka, *recover) == 0
    ended = (2, 1) if is_decided else (0, 3)
    assert capsys.readouterr().out == (
        f"'job of {slab_name}': committed {count(ended[0], 'transaction')} of the last decided batch, "
        f"aborted {count(ended[1], 'other')}\n"
    )
    wait_for_markers(kafka.bootstrap_servers)
    visible = consume_values(servers | {"isolation.level": "read_committed"}, topic)
    assert visible == {0: [b"first", b"second"] if is_decided else []}
    assert transactions(kafka, *recover) == 0
    assert "committed 0 transactions of the last decided batch, aborted 0 others" in capsys.readouterr().out
    wait_until_gone(slab_name)


def die(*args: object, **more: object) -> None:
    raise RuntimeError("the driver dies here")


def test_a_state_that_no_writer_has_stored(kafka: KafkaCluster, slab_name: str, capsys: Capture) -> None:
    """One outside of a transaction is ignored; one without fields, without JSON or not compressed is refused."""
    recover = "recover", f"{slab_name}-"
    assert transactions(kafka, *recover) == 1  # now the topic exists
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "shmaccum.name": slab_name, "sender.idle.ms": 100}
    key = f"{slab_name}-driver".encode()
    with Producer(settings) as producer:
        producer.send(Writer.log, zlib.compress(b"{}"), key=key).get(30)
    assert transactions(kafka, *recover) == 1
    assert "has nothing of a writer" in capsys.readouterr().err
    with Producer(settings | {"transactional.id": f"{slab_name}-driver"}) as producer:
        producer.init_transactions()
        for state in (zlib.compress(b"{}"), zlib.compress(b"["), b"{}"):
            producer.begin_transaction()
            producer.send(Writer.log, state, key=key)
            producer.commit_transaction()
            wait_for_markers(kafka.bootstrap_servers)
            assert transactions(kafka, *recover) == 1
            assert "cannot be read" in capsys.readouterr().err
    wait_until_gone(slab_name)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: ACTION"),
        (["list", "orders"], "unknown arguments: orders"),
        (["abort"], "required: ID"),
        (["recover"], "required: PREFIX"),
        (["list", "--state", "Open"], "invalid choice"),
    ],
)
def test_misuse(arguments: list[str], says: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
