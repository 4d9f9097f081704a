"""Transactions of whole producers, read back from Apache Kafka, in both versions of the protocol."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pyarrow as pa
import pytest
from brokers import MakeCluster, consume_values, wait_for_markers
from processes import Child
from producers import kafka_settings, sender_pid, wait_until, wait_until_gone

from shmaccum import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition, errors
from shmaccum._core import Slot
from shmaccum.shm.layout import SlotState, state_of
from tools.kafka import KafkaCluster

Start = Callable[..., Child]
PARTITIONS = 3


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def cluster(request: pytest.FixtureRequest, kafka: KafkaCluster, kafka_cluster: MakeCluster) -> KafkaCluster:
    """Return a broker whose transactions have one version of the protocol; the newest is that of every broker."""
    if request.param == 2:
        return kafka
    cluster = kafka_cluster(features={"transaction.version": 1})
    cluster.start()
    return cluster


_slabs: set[str] = set()


@pytest.fixture(scope="module", autouse=True)
def gone() -> Iterator[None]:
    """Wait at the end until the senders have left the slabs that stay from one test to the next."""
    yield
    for name in _slabs:
        wait_until_gone(name)


@pytest.fixture
def own(slab_name: str) -> Iterator[dict[str, object]]:
    """Return settings for a slab of the test's own, which must go at the end."""
    yield {"shmaccum_name": slab_name, "sender_idle_ms": 100}
    wait_until_gone(slab_name)


@pytest.fixture
def topic(topic: str, request: pytest.FixtureRequest) -> str:
    """Return the name of a topic that the test's cluster has."""
    cluster = request.getfixturevalue("cluster" if "cluster" in request.fixturenames else "kafka")
    cluster.admin.create_topic(topic, partitions=PARTITIONS)
    return topic


@contextmanager
def transactional(cluster: KafkaCluster, name: str, **more: object) -> Iterator[Producer]:
    """Have a producer that is ready to begin a transaction."""
    with Producer(settings(cluster, name, **more)) as producer:
        producer.init_transactions()
        yield producer


def settings(cluster: KafkaCluster, name: str, **more: object) -> dict[str, object]:
    """Return settings of the slab that stays for a cluster."""
    slab = f"transactions-{os.getpid()}-{cluster.bootstrap_servers.rpartition(':')[2]}"
    _slabs.add(slab)
    return kafka_settings(cluster.bootstrap_servers, slab, **{"transactional_id": name, "sender_idle_ms": 1000, **more})


def visible(cluster: KafkaCluster, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """Return the values that a consumer sees once all that was ended has its markers, sorted."""
    wait_for_markers(cluster.bootstrap_servers)
    found = consume_values({"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}, topic)
    return sorted((value for values in found.values() for value in values), key=lambda value: value or b"")


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.send(topic, value, partition=number % PARTITIONS)


def send_and_commit(producer: Producer, topic: str, *values: bytes) -> None:
    send(producer, topic, *values)
    producer.commit_transaction()


def commit(producer: Producer, topic: str, *values: bytes) -> None:
    """Write values in a transaction of their own."""
    producer.begin_transaction()
    send_and_commit(producer, topic, *values)


def numbered(what: bytes, count: int) -> list[bytes]:
    return [b"%s-%04d" % (what, number) for number in range(count)]


def test_committed_is_visible_and_aborted_is_not(cluster: KafkaCluster, slab_name: str, topic: str) -> None:
    committed: list[bytes] = []
    with transactional(cluster, slab_name) as producer:
        for turn in range(6):
            producer.begin_transaction()
            values = numbered(b"%d" % turn, 200)
            send(producer, topic, *values)
            if turn % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += values
    assert visible(cluster, topic) == sorted(committed)
    assert len(visible(cluster, topic, "read_uncommitted")) == 6 * 200


def test_columns_and_records_without_a_partition(cluster: KafkaCluster, slab_name: str, topic: str) -> None:
    """Rows go to all partitions, which one request adds to the transaction in version 1.

    The sticky partitioner switches among the transaction's own deques.
    """
    rows, values = numbered(b"row", 5000), numbered(b"x" * 500, 1000)
    batch = pa.record_batch({"key": pa.array(rows, pa.binary()), "value": pa.array(rows, pa.binary())})
    with transactional(cluster, slab_name, compression_type="lz4", batch_size=4096) as producer:
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send_batch(topic, batch)
            for value in values:
                producer.send(topic, value)
            end()
    assert visible(cluster, topic) == sorted([*rows, *values])


def test_two_transactions_and_plain_records_share_a_slab(cluster: KafkaCluster, slab_name: str, topic: str) -> None:
    plain = settings(cluster, slab_name, transactional_id="")
    with (
        transactional(cluster, slab_name, transactional_id="one") as one,
        transactional(cluster, slab_name, transactional_id="two") as two,
        Producer(plain) as outside,
    ):
        one.begin_transaction()
        two.begin_transaction()
        for number in range(300):
            for name, producer in ((b"1", one), (b"2", two), (b"0", outside)):
                producer.send(topic, b"%s-%04d" % (name, number), partition=number % PARTITIONS)
        one.commit_transaction()
        two.abort_transaction()
        outside.flush()
    assert visible(cluster, topic) == sorted(numbered(b"0", 300) + numbered(b"1", 300))


@pytest.mark.parametrize("same_slab", [True, False])
def test_the_newer_producer_fences_the_older(
    cluster: KafkaCluster, own: dict[str, object], slab_name: str, topic: str, same_slab: bool
) -> None:
    with transactional(cluster, slab_name) as older:
        older.begin_transaction()
        send(older, topic, b"older")
        older.flush()
        with transactional(cluster, slab_name, **{} if same_slab else own) as newer:
            # In the same slab nothing is accepted any more. From another one, a coordinator or a partition's leader
            # refuses it. The latter can also mean a timeout, so the abort shows which it is (KIP-588).
            with pytest.raises((errors.ProducerFencedError, errors.InvalidProducerEpochError)):
                send_and_commit(older, topic, *numbered(b"late", 20))
            with pytest.raises(errors.ProducerFencedError):
                older.abort_transaction()
            with pytest.raises(errors.ProducerFencedError, match="close the producer"):
                older.begin_transaction()
            commit(newer, topic, b"newer")
    assert visible(cluster, topic) == [b"newer"]


def test_a_batch_that_fails_leaves_the_abort_as_the_only_way(cluster: KafkaCluster, slab_name: str, topic: str) -> None:
    topic = f"{topic}-small"
    cluster.admin.create_topic(topic, partitions=PARTITIONS, settings={"max.message.bytes": 2000})
    with transactional(cluster, slab_name) as producer:
        producer.begin_transaction()
        send(producer, topic, b"small")
        lost = producer.send(topic, bytes(5000), partition=1)
        with pytest.raises(errors.RecordTooLargeError):
            producer.commit_transaction()
        with pytest.raises(errors.RecordTooLargeError, match="abort the transaction"):
            producer.send(topic, b"more")
        with pytest.raises(errors.RecordTooLargeError, match="abort the transaction"):
            producer.commit_transaction()
        assert isinstance(lost.exception(), errors.RecordTooLargeError)
        producer.abort_transaction()
        commit(producer, topic, b"after")
    assert visible(cluster, topic) == [b"after"]


def test_a_record_that_is_refused_at_once_does_too(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    with transactional(kafka, slab_name, max_request_size=1000) as producer:
        producer.begin_transaction()
        with pytest.raises(errors.RecordTooLargeError):
            producer.send(topic, bytes(5000))
        with pytest.raises(errors.RecordTooLargeError, match="abort the transaction"):
            producer.commit_transaction()
        producer.abort_transaction()


def test_dropped_records_say_so_and_do_not_count_as_failed(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    with transactional(kafka, slab_name, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        producer.begin_transaction()
        future = producer.send(topic, b"lingers", partition=0)
        producer.abort_transaction()
        assert isinstance(future.exception(), errors.TransactionAbortedError)
        assert producer.metrics()[f"producer-topic-metrics.{topic}"]["record-error-total"] == 0
    assert not visible(kafka, topic, "read_uncommitted")


def test_a_batch_that_is_lost_fails_the_transaction(
    kafka: KafkaCluster, own: dict[str, object], slab_name: str, topic: str
) -> None:
    """One whose header is damaged leaves the slab without a word to the lane."""
    with transactional(kafka, slab_name, linger_ms=60_000, delivery_timeout_ms=100_000, **own) as producer:
        producer.begin_transaction()
        producer.send(topic, b"lost", partition=0)
        slab = producer._slab
        (slot,) = (state_of(slab.headers[:, Slot.STATE]) == SlotState.OPEN).nonzero()[0].tolist()
        slab.words[slab.geometry.header(slot) + Slot.STATE] = SlotState.FREE
        with pytest.raises((errors.CorruptRecordError, errors.SlabDamagedError)):
            producer.commit_transaction()


def test_the_sender_is_killed_in_a_transaction(cluster: KafkaCluster, slab_name: str, topic: str) -> None:
    values = numbered(b"v" * 300, 6000)
    with transactional(cluster, slab_name, linger_ms=0) as producer:
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)
            if number % 1500 == 700:
                wait_until(lambda: sender_pid(producer), "there is a sender")  # 0 would be this process's group
                os.kill(sender_pid(producer), signal.SIGKILL)
        producer.commit_transaction()
    assert visible(cluster, topic) == values


def die_in_a_transaction(link: Connection, config: dict[str, object], topic: str) -> None:
    producer = Producer(config)
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, *numbered(b"dead", 500))
    link.send("sent")
    signal.pause()


def test_a_producer_is_killed_in_a_transaction(cluster: KafkaCluster, start: Start, slab_name: str, topic: str) -> None:
    """The sender drops what it had queued, and the next producer of the id aborts what was sent."""
    dead = start(die_in_a_transaction, settings(cluster, slab_name), topic)
    assert dead.hear() == "sent"
    dead.kill()
    with transactional(cluster, slab_name) as producer:
        commit(producer, topic, *numbered(b"alive", 500))
    assert visible(cluster, topic) == numbered(b"alive", 500)


def test_a_dead_producers_lane_is_emptied_without_another_one(
    kafka: KafkaCluster, start: Start, slab_name: str, topic: str
) -> None:
    lingering = settings(kafka, slab_name, linger_ms=60_000, delivery_timeout_ms=100_000)
    with Producer(settings(kafka, slab_name, transactional_id="")) as other:
        dead = start(die_in_a_transaction, lingering, topic)
        assert dead.hear() == "sent"
        dead.kill()
        wait_until(lambda: other._slab.undelivered() == (0, 0), "the dead producer's records are dropped")
    assert not visible(kafka, topic, "read_uncommitted")


def test_a_forked_child_is_not_in_its_parents_transaction(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    with transactional(kafka, slab_name) as producer:
        producer.begin_transaction()
        send(producer, topic, b"parent")
        pid = os.fork()
        if not pid:
            try:
                producer.send(topic, b"child", partition=0)
            except errors.IllegalStateError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        producer.commit_transaction()
    assert visible(kafka, topic) == [b"parent"]


def test_a_close_aborts(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    with transactional(kafka, slab_name) as producer:
        producer.begin_transaction()
        send(producer, topic, b"never")
        producer.flush()
    with transactional(kafka, slab_name) as producer:
        commit(producer, topic, b"then")
    assert visible(kafka, topic) == [b"then"]


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_part_of_the_transaction(cluster: KafkaCluster, slab_name: str, topic: str, commits: bool) -> None:
    group = ConsumerGroupMetadata(f"group-{topic}")
    with transactional(cluster, slab_name) as producer:
        producer.begin_transaction()
        send(producer, topic, b"value")
        offsets = {
            TopicPartition(topic, 0): OffsetAndMetadata(5, "note"),
            TopicPartition(topic, 1): OffsetAndMetadata(7),
        }
        producer.send_offsets_to_transaction(offsets, group)
        producer.send_offsets_to_transaction({}, group)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        times = {name: value for name, value in producer.metrics()["producer-metrics"].items() if name[:4] == "txn-"}
    calls = ("init", "begin", "send-offsets", "commit", "abort")
    assert set(times) == {f"txn-{call}-time-ns-total" for call in calls}
    assert {name for name, value in times.items() if not value} == {
        f"txn-{'abort' if commits else 'commit'}-time-ns-total"
    }
    expected = {0: 5, 1: 7} if commits else {}  # the answer to a commit comes before its marker is in the group's log
    wait_until(lambda: cluster.admin.committed_offsets(group.group_id, topic) == expected)


def test_more_transactions_than_the_slab_has_room_for(
    kafka: KafkaCluster, own: dict[str, object], slab_name: str, topic: str
) -> None:
    small = own | {"shmaccum_max_transactions": 1}
    with (
        transactional(kafka, slab_name, transactional_id="one", **small),
        Producer(settings(kafka, slab_name, transactional_id="two", **small)) as second,
        pytest.raises(errors.SlabFullError, match=r"shmaccum\.max\.transactions"),
    ):
        second.init_transactions()
    with transactional(kafka, slab_name, transactional_id="two", **small) as second:
        commit(second, topic, b"in the lane of the first")
    assert visible(kafka, topic) == [b"in the lane of the first"]


def test_calls_that_the_state_does_not_allow(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    with Producer(settings(kafka, slab_name, transactional_id="")) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(errors.IllegalStateError, match=r"transactional\.id"):
                call()
    with Producer(settings(kafka, slab_name)) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(errors.IllegalStateError, match=r"UNINITIALIZED .*; call init_transactions first"):
                call()
        with pytest.raises(errors.IllegalStateError):
            producer.send(topic, b"too early", partition=0)
        producer.init_transactions()
        with pytest.raises(errors.IllegalStateError):
            producer.send(topic, b"outside", partition=0)
        for call in (producer.init_transactions, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(errors.IllegalStateError, match="READY"):
                call()
        producer.begin_transaction()
        with pytest.raises(errors.IllegalStateError, match="IN_TRANSACTION"):
            producer.begin_transaction()
        with pytest.raises(errors.IllegalArgumentError, match="group_id"):
            producer.send_offsets_to_transaction({}, "group")  # type: ignore[arg-type]
        producer.commit_transaction()
    assert not visible(kafka, topic)
