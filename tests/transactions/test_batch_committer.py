"""Batches of transactions that one process writes and another one commits, with a death at every step."""

from __future__ import annotations

import itertools
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import confluent_kafka
import pytest
from brokers import MakeCluster, consume_values, wait_for_markers
from fixture_types import LogCapture, MonkeyPatch
from kafka import KafkaAdminClient
from kafka.admin import UpdateFeatureType
from processes import wait_until
from producers import kafka_settings, wait_until_gone

from shmaccum import Producer, errors
from shmaccum._core import murmur2
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.kafka.schema import ApiMessage
from shmaccum.transactions import administration, batch_committer
from shmaccum.transactions.administration import ONGOING, TransactionEnds, Transactions
from shmaccum.transactions.batch_committer import BatchCommitter, Plan
from shmaccum.transactions.broker_client import BrokerClient, Exchange, MakeCall
from shmaccum.transactions.commit_log import CommitLog
from shmaccum.transactions.coordinator import (
    IMPLICIT,
    LAST_EPOCH,
    Identity,
    PreparedTransaction,
    TransactionCoordinator,
    deadline_after,
)
from shmaccum.transactions.writer_id import Writer, WriterId
from shmaccum.transactions.writer_state import LARGEST_STATE, Driver
from tools.kafka import KafkaCluster

PARTITIONS = 3


Ask = Callable[[int, Sequence[Exchange], Callable[[], None]], None]
"""Replaces the way to ask brokers: gets the number of the call, what is asked, and what really asks."""


class Death(BaseException):
    """A process ends here."""


def _die(*args: object, **more: object) -> None:
    raise Death


@contextmanager
def death_in(where: type, method: str, die: Callable[..., Any] = _die) -> Iterator[None]:
    """Let the process die in the block, where a method is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, method, die)
        with pytest.raises(Death):
            yield


SLAB = f"batches-{os.getpid()}"
LOG = "commits"
"""The commit log of all writers here but those that hurt it."""
LEFT = range(-1, 3)
"""Epochs that a producer id has left: one batch takes up to three."""
WORN = {
    (version, left, step): f"worn-{version}-{left}-{step}"
    for version in (1, 2)
    for left in LEFT
    for step in ("never", "append", "end")
}
"""Names of writers, by the protocol's version, by the epochs that they have left, and by the step they die at."""
FORGOTTEN = {step: f"forgotten-{step}" for step in ("never", "init_producer_id", "append", "end", "junk")}
"""Names of writers that were idle for so long that the brokers have forgotten their transactional ids."""


def settings(cluster: KafkaCluster, **more: object) -> ProducerConfig:
    """Return the settings of the tasks and their driver; ``_`` stands for Kafka's ``.``."""
    return ProducerConfig.parse(
        kafka_settings(cluster.bootstrap_servers, SLAB, **{"transactional_id": "tasks", **more})
    )


class Decisions:
    """Writers whose batches have no transactions: what counts is which batches are decided."""

    def __init__(self, cluster: KafkaCluster, client: BrokerClient, config: ProducerConfig) -> None:
        self.cluster, self.client, self.config = cluster, client, config

    def committer(self, name: str, **more: Any) -> BatchCommitter:
        return BatchCommitter(self.client, self.config, Writer(name, f"{name}-", LOG, **more))

    def batch(self, name: str, number: int) -> None:
        committer = self.committer(name)
        plan = committer.plan()
        assert plan.decided == (number - 1 if number else None), name
        committer.commit(plan, number, "query", [])

    def coordinator(self, name: str) -> TransactionCoordinator:
        return TransactionCoordinator(self.client, f"{name}-driver", self.config)

    def holder(self, name: str) -> Identity:
        return self.coordinator(name).describe(deadline_after(20_000)).identity

    def wait_for_another_id(self, name: str, former: int) -> None:
        wait_until(lambda: self.holder(name).producer_id != former, "the last transaction has ended completely")


@contextmanager
def decisions_at(cluster: KafkaCluster) -> Iterator[Decisions]:
    config = settings(cluster)
    with BrokerClient(config) as client:
        yield Decisions(cluster, client, config)


def set_epochs(cluster: KafkaCluster, epochs: Mapping[str, tuple[int, int] | None]) -> None:
    """Let transactional ids have these producer ids and epochs, or be forgotten (None); the one broker starts again.

    A coordinator reads its ids from its log when it starts, and takes records there from who calls itself the
    administration's client. All ids have committed their last transaction.
    """
    administration = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "__admin_client", "log_level": 0}
    producer = confluent_kafka.Producer(administration)
    complete_commit, now_ms = 4, int(time.time() * 1000)
    for name, identity in epochs.items():
        key = struct.pack(">hh", 0, len(name)) + name.encode()
        value = identity and struct.pack(">hqhibiqq", 0, *identity, 60_000, complete_commit, 0, now_ms, now_ms)
        producer.produce("__transaction_state", value, key, 0)
    assert producer.flush(60) == 0
    (node,) = cluster.nodes.values()
    node.stop()
    node.start()


@pytest.fixture(scope="module")
def broker(kafka_cluster: MakeCluster) -> KafkaCluster:
    """Return a broker that has run for long: writers have used up their epochs, and others are forgotten."""
    cluster = kafka_cluster()
    cluster.start()
    ids: dict[str, tuple[int, int] | None] = dict.fromkeys(f"{name}-driver" for name in FORGOTTEN.values())
    with decisions_at(cluster) as decisions:
        for name in (*FORGOTTEN.values(), *WORN.values()):
            decisions.batch(name, 0)
        for (_, left, _), name in WORN.items():
            ids[f"{name}-driver"] = decisions.holder(name).producer_id, LAST_EPOCH - left
    set_epochs(cluster, ids)
    return cluster


@pytest.fixture(scope="module", params=[2, 1], ids=["version-2", "version-1"])
def version(broker: KafkaCluster, request: pytest.FixtureRequest) -> int:
    """Return the version of the transaction protocol that the broker has now."""
    admin = KafkaAdminClient(bootstrap_servers=broker.internal_servers)
    kind = UpdateFeatureType.SAFE_DOWNGRADE if request.param == 1 else UpdateFeatureType.UPGRADE
    assert admin.update_features({"transaction.version": (kind, request.param)}) == {"transaction.version": "OK"}
    admin.close()
    return int(request.param)


in_one_version = pytest.mark.parametrize("version", [2], ids=["version-2"], indirect=True)
"""For what both versions of the protocol do alike."""


@pytest.fixture(scope="module")
def producer(broker: KafkaCluster, version: int) -> Iterator[Producer]:
    """Return the producer of the tasks; its slab and its sender stay for the module's tests."""
    with Producer(settings(broker)) as producer:
        yield producer
    wait_until_gone(SLAB)


class Job:
    """A writer with its tasks, on one topic."""

    def __init__(self, cluster: KafkaCluster, producer: Producer, topic: str) -> None:
        self.cluster, self.producer, self.topic, self.name = cluster, producer, topic, f"job-{topic}"
        self.config = producer.config
        self.log = LOG

    def writer(self, **more: Any) -> Writer:
        return Writer(self.name, f"{self.name}-", self.log, **more)

    @contextmanager
    def committer(self, **more: object) -> Iterator[BatchCommitter]:
        """Have what a process of the driver has."""
        with BrokerClient(self.config) as client:
            yield BatchCommitter(client, self.config, self.writer(**more))

    def run_impatiently(self, call: Callable[[BatchCommitter], object], ask: Ask, **more: object) -> int:
        """Do what a driver does, with another way to ask brokers; return how often it asked.

        A errors.KafkaError is no surprise.
        """
        config, ask_all, numbers = settings(self.cluster, max_block_ms=300), BrokerClient.ask_all, itertools.count()

        def ask_otherwise(client: BrokerClient, exchanges: Sequence[Exchange], deadline_ms: float) -> None:
            ask(next(numbers), exchanges, lambda: ask_all(client, exchanges, deadline_ms))

        with pytest.MonkeyPatch.context() as patch, BrokerClient(config) as client, suppress(errors.KafkaError):
            patch.setattr(BrokerClient, "ask_all", ask_otherwise)
            call(BatchCommitter(client, config, self.writer(**more)))
        return next(numbers)

    def plan(self, **more: object) -> Plan:
        with self.committer(**more) as committer:
            return committer.plan()

    def end_batch(self, plan: Plan | None, **more: object) -> None:
        with self.committer(**more) as committer:
            committer.end_batch(plan)

    def commit(self, plan: Plan, batch: int, transactions: list[PreparedTransaction]) -> None:
        with self.committer() as committer:
            committer.commit(plan, batch, "query", transactions)

    def write(self, number: int, *values: bytes) -> PreparedTransaction:
        """Do what a task does, with an id that it has for itself under a plan."""
        transactions = self.producer.transactions
        transactions.init(f"{self.name}-{number}")
        transactions.begin()
        for each, value in enumerate(values):
            self.producer.send(self.topic, value, partition=each % PARTITIONS)
        return transactions.prepare()

    def batch(self, batch: int) -> list[bytes]:
        """Do a whole batch; return what it made visible."""
        plan = self.plan()
        values = [b"%d-%d" % (batch, each) for each in range(6)]
        self.commit(plan, batch, [self.write(0, *values[:3]), self.write(1, *values[3:])])
        return values

    def open_ids(self) -> list[str]:
        with BrokerClient(self.config) as client:
            found = Transactions(client, self.config).find(f"{self.name}-", (ONGOING,), deadline_after(20_000))
        return [each.transactional_id for each in found]

    def visible(self) -> list[bytes | None]:
        wait_for_markers(self.cluster.bootstrap_servers)
        reading = {"bootstrap.servers": self.cluster.bootstrap_servers, "isolation.level": "read_committed"}
        return sorted(value for values in consume_values(reading, self.topic).values() for value in values)  # type: ignore[type-var]


@pytest.fixture
def job(broker: KafkaCluster, producer: Producer, topic: str) -> Job:
    """Return a writer."""
    broker.admin.create_topic(topic, partitions=PARTITIONS)
    return Job(broker, producer, topic)


@pytest.fixture
def decisions(broker: KafkaCluster, version: int) -> Iterator[Decisions]:
    with decisions_at(broker) as decisions:
        yield decisions


def test_what_is_not_committed_is_aborted(job: Job) -> None:
    """Of an attempt that lost against another one, by the commit; of a batch that failed, by the next plan.

    What stays open until its timeout hides from consumers whatever comes behind it.
    """
    plan = job.plan()
    job.write(0, b"slow", b"attempt")
    won = job.write(1, b"fast", b"one")
    job.commit(plan, 0, [won])
    assert job.open_ids() == []
    assert job.visible() == [b"fast", b"one"]
    job.plan()
    job.write(0, b"of a batch that failed")
    job.plan()
    assert job.open_ids() == []
    assert job.visible() == [b"fast", b"one"]


def test_a_task_can_tell_that_its_batch_is_over(job: Job) -> None:
    """Else the transaction of a task that outlives its batch stays open until its timeout."""
    transactions = job.producer.transactions
    plan = job.plan()
    assert transactions.holder_of(plan.transactional_id) == plan.identity
    job.end_batch(plan)
    assert transactions.holder_of(plan.transactional_id) != plan.identity
    plan = job.plan()
    written = [job.write(0, b"a")]
    assert transactions.holder_of(plan.transactional_id) == plan.identity
    job.commit(plan, 0, written)
    # Version 1 of the protocol does not raise the epoch at the end of a transaction.
    assert (transactions.holder_of(plan.transactional_id) != plan.identity) is (plan.version >= IMPLICIT)
    assert job.visible() == [b"a"]


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_commit_leaves_a_newer_plans_transactions_alone(job: Job, is_reused: bool, monkeypatch: MonkeyPatch) -> None:
    """Also where they have the ids of those that it decided: these are not lost, the newer plan has committed them."""
    first, newer = job.plan(), []
    written = [job.write(0, b"decided")]
    store = WriterId.store

    def store_and_be_slow(self: WriterId, *args: Any) -> tuple[Identity, int]:
        stored = store(self, *args)
        if not newer:
            newer.append(None)
            newer[:] = [job.plan(), job.write(0 if is_reused else 1, b"of the newer plan")]
        return stored

    monkeypatch.setattr(WriterId, "store", store_and_be_slow)
    with pytest.raises(errors.ProducerFencedError) if is_reused else nullcontext():
        job.commit(first, 0, written)
    job.commit(newer[0], 1, newer[1:])
    assert job.visible() == [b"decided", b"of the newer plan"]


STEPS = {
    "before the decision": (CommitLog, "append"),
    "in the decision": (TransactionCoordinator, "end"),
    "after the decision": (BatchCommitter, "_end_decided"),
    "after the last end": (BatchCommitter, "_abort"),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_driver_dies(job: Job, step: str) -> None:
    first = job.batch(0)
    plan = job.plan()
    written = [job.write(0, b"a", b"b"), job.write(1, b"c")]
    with death_in(*STEPS[step]):
        job.commit(plan, 1, written)
    following = job.plan()
    if step in ("before the decision", "in the decision"):
        assert following.decided == 0
        assert job.visible() == first
    else:
        assert following.decided == 1
        assert job.visible() == sorted([*first, b"a", b"b", b"c"])
    last = job.batch(2)
    assert set(last) < set(job.visible())


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_the_driver_dies_between_the_ends(job: Job, ended: int) -> None:
    """And the plan after that dies, too, before it is in the log: the next one ends the same once more."""
    plan = job.plan()
    written = [job.write(0, b"a"), job.write(1, b"b")]
    end_all = batch_committer.TransactionEnds.end

    def end_some(self: object, transactions: list[PreparedTransaction], **more: object) -> None:
        end_all(self, transactions[:ended], **more)  # type: ignore[arg-type]
        raise Death

    with death_in(batch_committer.TransactionEnds, "end", end_some):
        job.commit(plan, 0, written)
    with death_in(CommitLog, "append"):
        job.plan()
    assert job.plan().decided == 0
    assert job.visible() == [b"a", b"b"]


def test_a_failed_commit_is_ended(job: Job, monkeypatch: MonkeyPatch) -> None:
    """Spark asks to abort after a commit has failed, also if it was decided."""
    plan = job.plan()
    written = [job.write(0, b"a")]
    refused = errors.TransactionalIdAuthorizationError("the rights were taken away")
    with monkeypatch.context() as patch:
        patch.setattr(TransactionEnds, "end", lambda self, transactions, **more: dict.fromkeys(transactions, refused))
        with pytest.raises(errors.TransactionalIdAuthorizationError):
            job.commit(plan, 0, written)
    job.end_batch(plan)
    assert job.visible() == [b"a"]
    plan = job.plan()
    job.write(0, b"b")
    job.end_batch(plan)
    assert job.visible() == [b"a"]


@in_one_version
def test_a_batch_that_is_visible_has_not_failed(job: Job, caplog: LogCapture, monkeypatch: MonkeyPatch) -> None:
    """Although a broker is lost before all else is aborted: a job that fails is run again, and writes all twice."""

    def lost(*args: Any) -> None:
        raise errors.NetworkError("no connection to broker 7")

    plan = job.plan()
    written = [job.write(0, b"a")]
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "find", lost)
        job.commit(plan, 0, written)
    assert job.visible() == [b"a"]
    assert "no connection to broker 7" in caplog.text


def test_an_older_driver_is_fenced(job: Job) -> None:
    older = job.plan()
    written = job.write(0, b"older")
    newer = job.plan()
    with pytest.raises(errors.ProducerFencedError, match="has been started again"):
        job.commit(older, 0, [written])
    job.end_batch(older)  # leaves the newer one alone
    job.commit(newer, 0, [job.write(0, b"newer")])
    assert job.visible() == [b"newer"]


def test_a_decided_transaction_was_aborted(job: Job, monkeypatch: MonkeyPatch) -> None:
    """As its timeout does it; the loss is named until the user has seen it."""
    plan = job.plan()
    written = job.write(0, b"a", b"b")._replace(records=2)
    with monkeypatch.context() as patch:
        patch.setattr(BatchCommitter, "_end_decided", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.commit(plan, 0, [written])
    with BrokerClient(job.config) as client:
        Transactions(client, job.config).abort(written.transactional_id, deadline_after(10_000))
    wait_for_markers(job.cluster.bootstrap_servers)
    lost = rf"{written.transactional_id} .* 2 records in {job.topic}-0"
    for _ in range(2):
        with pytest.raises(errors.TransactionLostError, match=lost):
            job.plan()
    assert job.plan(fail_on_data_loss=False).decided == 0


@in_one_version
def test_the_log_is_not_compacted(job: Job) -> None:
    job.log = f"{job.name}-log"
    job.cluster.admin.create_topic(job.log, settings={"cleanup.policy": "delete"})
    with pytest.raises(errors.ConfigError, match="set compact"):
        job.plan()


@pytest.mark.parametrize("step", ["append", "end"])
def test_the_first_plan_of_all_is_interrupted(job: Job, step: str, monkeypatch: MonkeyPatch) -> None:
    """The id was used, and has no state yet: that is no loss. So it is where the rights to write are missing."""
    with monkeypatch.context() as patch:
        patch.setattr({"append": CommitLog, "end": TransactionCoordinator}[step], step, lambda *args, **more: 1 / 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                job.plan()
    assert job.plan().number == (1 if step == "append" else 2)


def forge(cluster: KafkaCluster, name: str, *values: bytes) -> None:
    """Write states under a writer's key, as anyone can who has the rights to write to the topic."""
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer(settings | {"transactional.id": f"mallory of {name}"})
    producer.init_transactions(10)
    key = f"{name}-driver".encode()
    for value in values:
        producer.begin_transaction()
        producer.produce(LOG, value, key, (murmur2(key) & 0x7FFFFFFF) % 16)
        producer.commit_transaction(10)
    wait_for_markers(cluster.bootstrap_servers)


def state(name: str, **more: object) -> bytes:
    fields = {"plan": 9, "decided_in": 9, "batch": 1000, "source": "query", "transactions": []}
    return zlib.compress(json.dumps({"format": 1, "writer": name, **fields, **more}).encode())


def test_a_forged_state_is_skipped(job: Job, caplog: LogCapture) -> None:
    """Else all batches up to the forged one count as written."""
    first = job.batch(0)
    forge(job.cluster, job.name, state(job.name))
    plan = job.plan()
    assert (plan.number, plan.decided) == (2, 0)
    assert "by other producer ids are skipped" in caplog.text
    job.commit(plan, 1, [job.write(0, b"after it")])
    assert job.visible() == sorted([*first, b"after it"])


@in_one_version
def test_a_forged_decision_commits_nothing(job: Job) -> None:
    """It names an open transaction of another's, which stays open: the writer ends its own only."""
    job.batch(0)
    with Producer(settings(job.cluster, transactional_id=f"victim of {job.name}")) as victim:
        victim.init_transactions()
        victim.begin_transaction()
        victim.send(job.topic, b"not yet")
        victim.flush()
        prepared = victim.transactions.prepare()
        forge(job.cluster, job.name, state(job.name, transactions=[prepared]))
        before = job.visible()
        job.plan()
        assert job.visible() == before
        with BrokerClient(job.config) as client:
            ends = TransactionEnds(client, job.config)
            assert ends.end([prepared], commit=True, deadline_ms=deadline_after(20_000)) == {}
        assert job.visible() == sorted([*before, b"not yet"])


def junk(name: str) -> list[bytes]:
    """Return values that are no state of a writer."""
    foreign = PreparedTransaction("another query's-1", 1, 1, 2, ())
    return [
        b"",
        b"nonsense",
        zlib.compress(b"{}" * 100)[:-3],
        zlib.compress(b"nonsense"),
        zlib.compress(b"[" * 200_000),
        zlib.compress(bytes(100 << 20), 1),
        zlib.compress(b"[]"),
        zlib.compress(b'{"format":99}'),
        zlib.compress(b'{"format":1,"writer":"a"}'),
        state("another"),
        state(name, format=2),
        state(name, plan="9"),
        state(name, plan=10**400),
        state(name, transactions=[foreign]),
        state(name, transactions=[foreign._replace(transactional_id=f"{name}-driver")]),
        state(name, transactions=[foreign._replace(transactional_id=f"{name}-1", epoch=1 << 20)]),
        state(name, transactions=[foreign._replace(transactional_id=f"{name}-1", producer_id="1")]),
        state(name, transactions=[foreign._replace(transactional_id=f"{name}-1", partitions=(("t", "0"),))]),
        state(name)[:-1],
        state(name, source=" " * LARGEST_STATE),
        state(name, source=5),
        state(name, batch="1000"),
        state(name, driver=["host", "1", 1, ""]),
        state(name, replaced=[["host", 1, 1]]),
    ]


@in_one_version
def test_a_decision_that_is_too_large_to_be_read(decisions: Decisions, topic: str) -> None:
    committer = decisions.committer(topic)
    with pytest.raises(errors.RecordTooLargeError, match="fewer tasks"):
        committer.commit(committer.plan(), 0, " " * LARGEST_STATE, [])
    assert committer.plan().decided is None


@in_one_version
def test_very_many_transactions_end(decisions: Decisions) -> None:
    """A batch has one for each task of Spark; these are known to no one."""
    many = [PreparedTransaction(f"many-{number:060}", 1, 1, 2, ()) for number in range(15_000)]
    ends = TransactionEnds(decisions.client, decisions.config)
    failed = ends.end(many, commit=True, deadline_ms=deadline_after(60_000))
    assert {type(error) for error in failed.values()} == {errors.InvalidPidMappingError}


@in_one_version
def test_junk_is_skipped_where_any_state_counts(decisions: Decisions, caplog: LogCapture) -> None:
    name = FORGOTTEN["junk"]
    values = [value for value in junk(name) if value]  # without a value, the state is deleted
    forge(decisions.cluster, name, *values)
    assert decisions.committer(name).plan().decided == 0
    assert caplog.text.count("is skipped") >= len(values)


@in_one_version
def test_the_state_of_a_forgotten_id_counts(decisions: Decisions, caplog: LogCapture) -> None:
    """Else a batch that Spark repeats after a week is there twice."""
    name = FORGOTTEN["never"]
    with pytest.raises(errors.TransactionalIdNotFoundError):
        decisions.coordinator(name).describe(deadline_after(20_000))
    plan = decisions.committer(name).plan()
    assert (plan.number, plan.decided) == (2, 0)
    assert "the brokers do not know its transactional.id" in caplog.text


@in_one_version
@pytest.mark.parametrize("step", ["init_producer_id", "append", "end"])
def test_a_driver_dies_right_after_it_got_a_new_id(decisions: Decisions, step: str) -> None:
    where = CommitLog if step == "append" else TransactionCoordinator
    proceed = getattr(where, step)

    def die(*args: Any, **more: Any) -> Any:
        if step == "init_producer_id":
            proceed(*args, **more)
        raise Death

    committer = decisions.committer(FORGOTTEN[step])
    with death_in(where, step, die):
        committer.plan()
    assert isinstance(decisions.holder(FORGOTTEN[step]), Identity)
    assert committer.plan().decided == 0


OLDER, NEWER = Driver("a", 1, 1, "2026-01-01"), Driver("b", 2, 1, "2026-01-02")


@in_one_version
def test_an_older_driver_does_not_fence_the_newer_one(decisions: Decisions, topic: str) -> None:
    """Each plan would take over again, so both would fail."""
    older = decisions.committer(topic, driver=OLDER)
    newer = decisions.committer(topic, driver=NEWER)
    older.commit(older.plan(), 0, "query", [])
    begun = older.plan()
    # What another process of the driver says of its start can differ.
    assert older.successor(begun._replace(drivers=(OLDER._replace(started="2026-01-01 00:00:01"), ()))) == ""
    plan = newer.plan()
    named = "another driver now: process 2 on host b, started 2026-01-02. This one, process 1 on host a"
    with pytest.raises(errors.ProducerFencedError, match=named):
        older.commit(begun, 1, "query", [])
    for _ in range(2):
        with pytest.raises(errors.ProducerFencedError, match=named):
            older.plan()
    older.end_batch(None)
    newer.commit(plan, 1, "query", [])
    plan = newer.plan()
    assert plan.decided == 1
    assert named in older.successor(begun)
    newer.commit(plan, 2, "query", [])
    third = decisions.committer(topic, driver=Driver("a", 1, 2, "2026-01-03"))
    assert third.plan().decided == 2
    with pytest.raises(errors.ProducerFencedError, match="process 1 on host a, started 2026-01-03"):
        newer.plan()


def test_a_driver_dies_in_its_own_transaction_and_its_application_goes_on(decisions: Decisions, topic: str) -> None:
    """Its next process raises the epoch, for which the brokers refuse an id that has a transaction open."""
    committer = decisions.committer(topic, driver=OLDER)
    committer.commit(committer.plan(), 0, "query", [])
    with death_in(TransactionCoordinator, "end"):
        committer.plan()
    assert committer.plan().decided == 0


@in_one_version
@pytest.mark.parametrize("step", ["take_over", "_find"])
def test_the_end_of_a_batch_leaves_a_plan_alone_that_came_meanwhile(
    decisions: Decisions, topic: str, step: str, monkeypatch: MonkeyPatch
) -> None:
    older, newer = decisions.committer(topic), decisions.committer(topic)
    begun = older.plan()
    plans: list[Plan] = []
    method = getattr(older._id, step)

    def overtaken(*args: Any) -> Any:
        plans.append(newer.plan())
        return method(*args)

    monkeypatch.setattr(older._id, step, overtaken)
    with pytest.raises(errors.ProducerFencedError, match="has been started again"):
        older.end_batch(begun)
    newer.commit(plans[0], 0, "query", [])


@in_one_version
def test_a_replaced_driver_goes_on_when_the_newer_one_is_gone(decisions: Decisions, topic: str) -> None:
    """As two notebooks do that run the same query in turns."""
    me = Driver.of(os.getpid())
    mine, other = (decisions.committer(topic, driver=each) for each in (me, me._replace(ticks=me.ticks - 1)))
    mine.plan()
    other.plan()
    assert mine.plan().number == 3


def test_a_failed_batch_is_ended_without_its_plan(job: Job) -> None:
    """A query that is stopped before its first task is done has no result that could have a plan."""
    job.plan(driver=OLDER)
    written = job.write(0, b"a")
    job.end_batch(None, driver=NEWER)
    assert job.open_ids() == [written.transactional_id]
    job.end_batch(None, driver=OLDER)
    assert job.open_ids() == []
    assert job.plan(driver=OLDER).number == 2


@pytest.mark.parametrize("step", ["never", "append", "end"])
@pytest.mark.parametrize("left", LEFT)
def test_epochs_are_used_up(decisions: Decisions, version: int, left: int, step: str, monkeypatch: MonkeyPatch) -> None:
    """The brokers give the driver a new producer id then, at any step of a batch.

    If it dies right after it got that, no record of the log has the id yet, or one without its end.
    """
    name = WORN[version, left, step]
    former = decisions.holder(name).producer_id
    number, dying = 0, {"append": CommitLog, "end": TransactionCoordinator}.get(step)
    with monkeypatch.context() as patch, suppress(Death):
        if dying is not None:
            patch.setattr(dying, step, _die_with_another_id(former, getattr(dying, step)))
        for number in range(1, 5):
            decisions.batch(name, number)
    decisions.wait_for_another_id(name, former)
    if step == "append" and version == 2:  # the coordinator knows the former id, and no record has the new one
        forge(decisions.cluster, name, state(name))
    plan = decisions.committer(name).plan()
    assert plan.decided in ((number,) if dying is None else (number - 1, number))
    decisions.committer(name).commit(plan, number + 1, "query", [])
    decisions.batch(name, number + 2)


def _die_with_another_id(former: int, method: Callable[..., Any]) -> Callable[..., Any]:
    def die(self: Any, *args: Any, **more: Any) -> Any:
        me = next(each for each in args if isinstance(each, Identity))
        if me.producer_id != former:
            raise Death
        return method(self, *args, **more)

    return die


@in_one_version
def test_a_state_far_from_the_end_is_found(job: Job, monkeypatch: MonkeyPatch) -> None:
    """Other writers share the partition; one of them has a transaction open."""
    monkeypatch.setattr("shmaccum.transactions.commit_log._PARTITIONS", 1)
    monkeypatch.setattr("shmaccum.transactions.commit_log._FIRST_LOOK", 2)
    job.log = f"{job.name}-log"
    first = job.plan()
    with BrokerClient(job.config) as client:
        for other in range(3):
            writer = Writer(f"other {other}", f"{job.name}-other-{other}-", job.log)
            committer = BatchCommitter(client, job.config, writer)
            for _ in range(3):
                committer.plan()
        monkeypatch.setattr(TransactionCoordinator, "end", lambda *args, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            committer.plan()
        monkeypatch.undo()
        assert job.plan().number == first.number + 1


def test_many_transactions(job: Job) -> None:
    plan = job.plan()
    written = [job.write(number, b"%03d" % number) for number in range(50)]
    job.commit(plan, 7, written)
    assert job.visible() == [b"%03d" % number for number in range(50)]


@in_one_version
def test_a_leader_of_the_log_has_just_moved(decisions: Decisions, topic: str, monkeypatch: MonkeyPatch) -> None:
    """Else a batch would become visible without a decision in the log, or a plan would not know what was decided."""
    committer = decisions.committer(topic)
    plan = committer.plan()
    ask, asked = CommitLog._ask, list[str]()
    find, looks = CommitLog._find_leaders, list[float]()

    def ask_the_former_one(
        self: CommitLog, partition: int, request: ApiMessage, read: Callable[[Any], Any], *more: Any, **limits: int
    ) -> Any:
        def read_its_answer(answer: Any) -> Any:
            kind = request.type.api.name
            if kind not in asked:
                (of_topic,) = answer.topics if kind == "ListOffsets" else answer.responses
                (found,) = of_topic.partition_responses if kind == "Produce" else of_topic.partitions
                found.error_code = errors.NotLeaderOrFollowerError.code
                found.offset, found.records = -1, None
            asked.append(kind)
            return read(answer)

        return ask(self, partition, request, read_its_answer, *more, **limits)

    def look(self: CommitLog, deadline_ms: float) -> None:
        looks.append(deadline_ms)
        find(self, deadline_ms)

    monkeypatch.setattr(CommitLog, "_ask", ask_the_former_one)
    monkeypatch.setattr(CommitLog, "_find_leaders", look)
    committer.commit(plan, 0, "query", [])
    assert (asked, len(looks)) == (["Produce"] * 2, 1)
    assert committer.plan().decided == 0
    assert {"Fetch", "ListOffsets"} < set(asked)


@in_one_version
@pytest.mark.parametrize("question", ["list", "describe"])
def test_a_coordinator_does_not_know_yet_what_is_open(job: Job, question: str, monkeypatch: MonkeyPatch) -> None:
    """The end of what a batch has left is asked for again then: the next one would find nothing wrong."""
    job.plan()
    job.write(0, b"a")
    ask_all, refused = BrokerClient.ask_all, []

    def ask_all_while_loading(self: BrokerClient, exchanges: Sequence[Exchange], deadline_ms: float) -> None:
        ask_all(self, exchanges, deadline_ms)
        for response in [each.response for each in exchanges]:
            states, is_list = getattr(response, "transaction_states", ()), hasattr(response, "error_code")
            if states and is_list == (question == "list") and states[0].transactional_id != f"{job.name}-driver":
                if not refused:
                    refusal = response if is_list else states[0]
                    refusal.error_code = errors.CoordinatorLoadInProgressError.code
                    refusal.transaction_states, refusal.transaction_state = (), ""
                refused.append(question)

    monkeypatch.setattr(BrokerClient, "ask_all", ask_all_while_loading)
    job.plan()
    assert refused
    assert job.open_ids() == []


def test_a_coordinator_has_just_moved(job: Job, monkeypatch: MonkeyPatch) -> None:
    """The cluster knows none for one of the ids at first, and the one of the other says that it is not that."""
    plan = job.plan()
    written = [job.write(0, b"a"), job.write(1, b"b")]
    ask, unavailable, looked_for = BrokerClient.ask, [], list[str]()
    end_call, ended = administration._end_call, list[str]()

    def ask_when_moved(self: BrokerClient, node: Node | None, make: MakeCall, deadline_ms: float) -> Any:
        response = ask(self, node, make, deadline_ms)
        looked_for.extend(each.key for each in getattr(response, "coordinators", ()))
        if len(getattr(response, "coordinators", ())) == len(written) and not unavailable:
            response.coordinators[0].error_code = errors.CoordinatorNotAvailableError.code
            unavailable.append(response.coordinators[0].key)
        return response

    def end_when_moved(each: PreparedTransaction, *more: Any) -> Any:
        ended.append(each.transactional_id)
        if len(ended) == 1:
            raise errors.NotCoordinatorError("it has moved")
        return end_call(each, *more)

    monkeypatch.setattr(BrokerClient, "ask", ask_when_moved)
    monkeypatch.setattr(administration, "_end_call", end_when_moved)
    job.commit(plan, 0, written)
    assert unavailable == [written[0].transactional_id]
    assert [looked_for.count(each.transactional_id) for each in written] == [2, 2]
    assert job.visible() == [b"a", b"b"]


@in_one_version
@pytest.mark.parametrize("trouble", ["frozen", "lost"])
def test_no_call_waits_for_ever(job: Job, trouble: str) -> None:
    """A query's stop waits for its abort: also where a broker is frozen, or every connection to it is lost."""
    plan = job.plan()
    written = [job.write(number, b"a") for number in range(2)]
    calls: dict[str, Callable[[BatchCommitter], object]] = {
        "commit": lambda committer: committer.commit(plan, 0, "query", written),
        "end a batch": lambda committer: committer.end_batch(plan),
        "plan": BatchCommitter.plan,
        "end a driver's": lambda committer: committer.end_batch(None),
        "recover": BatchCommitter.recover,
    }
    node = job.cluster.nodes[1]

    def in_trouble_after(answered: int) -> Ask:
        def ask(number: int, exchanges: Sequence[Exchange], really: Callable[[], None]) -> None:
            if number >= answered and trouble == "lost":
                for each in exchanges:
                    each.error = errors.NetworkError("lost")
                return
            if number >= answered:
                node.pause()
            really()

        return ask

    for (name, call), answered in itertools.product(calls.items(), (0, 4, 8)):
        try:
            assert job.run_impatiently(call, in_trouble_after(answered), driver=Driver.of(os.getpid())) > 0, name
        finally:
            node.resume()
    with job.committer() as committer:
        committer.recover()


def emptied(answer: Any, level: int) -> None:
    """Remove all elements of the arrays at a level of an answer."""
    for name, array in list(vars(answer).items()):
        if isinstance(array, tuple):
            if level == 0:
                setattr(answer, name, ())
            for each in array:
                if hasattr(each, "__dict__"):
                    emptied(each, level - 1)


@in_one_version
@pytest.mark.parametrize("level", [0, 1])
def test_empty_arrays_of_a_hostile_broker(job: Job, level: int) -> None:
    """In place of one element each: an error that a caller expects, not an IndexError."""
    job.batch(0)

    def empty_from(first: int) -> Ask:
        def ask(number: int, exchanges: Sequence[Exchange], really: Callable[[], None]) -> None:
            really()
            for each in exchanges if number >= first else ():
                if each.response is not None:
                    emptied(each.response, level)

        return ask

    for first in range(14):
        job.run_impatiently(lambda committer: committer.end_batch(committer.plan()), empty_from(first))
    with job.committer() as committer:
        committer.recover()
