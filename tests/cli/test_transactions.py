"""``shmaccum transactions`` against Apache Kafka: what is open, and its end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from brokers import consume_values
from producers import wait_until_gone

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.errors import InvalidTxnStateError
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


def test_an_open_transaction_is_listed_and_aborted(
    kafka: KafkaCluster, producer: Producer, slab_name: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transactions(kafka, "list", "--prefix", slab_name, "--state", "Ongoing", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["transactional_id"], listed["state"], listed["timeout_ms"]) == (slab_name, "Ongoing", 60_000)
    assert listed["partitions"] == [f"{topic}-0"]
    assert transactions(kafka, "list", "--prefix", slab_name) == 0
    assert f"{topic}-0" in capsys.readouterr().out
    assert transactions(kafka, "abort", slab_name) == 0
    assert f"aborted the transaction of {slab_name}" in capsys.readouterr().out
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    assert consume_values(reading, topic) == {0: []}
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()


def test_several_are_aborted_wherever_the_ids_stand(
    kafka: KafkaCluster, producer: Producer, slab_name: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``xargs`` puts them: behind the options; an id that has no open transaction keeps no other open."""
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    assert main(["transactions", "abort", "-X", servers, f"{slab_name}-unknown", slab_name]) == 1
    out, err = capsys.readouterr()
    assert f"aborted the transaction of {slab_name}, open for" in out
    assert err == f"shmaccum transactions: no coordinator knows transactional.id '{slab_name}-unknown'\n"
    assert transactions(kafka, "list", "--prefix", slab_name, "--state", "Ongoing") == 0
    assert capsys.readouterr().out == "no transactions\n"
    producer.close(0)


def test_nothing_to_list_or_to_abort(kafka: KafkaCluster, slab_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert transactions(kafka, "list", "--prefix", slab_name) == 0
    assert capsys.readouterr().out == "no transactions\n"
    assert transactions(kafka, "abort", slab_name) == 1
    assert "no coordinator knows transactional.id" in capsys.readouterr().err


def test_an_ended_transaction(
    kafka: KafkaCluster, producer: Producer, slab_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.commit_transaction()
    assert transactions(kafka, "abort", slab_name) == 1
    assert "has no open transaction" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: ACTION"),
        (["list", "orders"], "unknown arguments: orders"),
        (["abort"], "required: ID"),
        (["list", "--state", "Open"], "invalid choice"),
    ],
)
def test_misuse(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_without_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "list"]) == 2
    assert "bootstrap.servers" in capsys.readouterr().err
