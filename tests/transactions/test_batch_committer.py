"""Batches of transactions that one process writes and another one commits, with a death at every step."""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import confluent_kafka
import pytest
from brokers import consume_values, set_epochs, wait_for_markers
from processes import wait_until
from producers import wait_until_gone

from shmaccum import Producer
from shmaccum._core import murmur2
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    ConfigError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    KafkaError,
    NetworkError,
    ProducerFencedError,
    TransactionLostError,
)
from shmaccum.transactions import batch_committer
from shmaccum.transactions.administration import ONGOING, Transactions
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
from shmaccum.transactions.writer_state import Driver
from tools.kafka import KafkaCluster

PARTITIONS = 3


class Death(BaseException):
    """A process ends here."""


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def cluster(request: pytest.FixtureRequest, kafka_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    """Return a broker whose transactions have one version of the protocol."""
    cluster = kafka_cluster(features={"transaction.version": request.param})
    cluster.start()
    return cluster


class Job:
    """A writer with its tasks, on one topic."""

    def __init__(self, cluster: KafkaCluster, name: str, topic: str, **more: object) -> None:
        self.cluster, self.topic, self.name = cluster, topic, name
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "shmaccum.name": name,
            "buffer.memory": 1 << 20,
            "sender.idle.ms": 100,
            "transactional.id": name,
            "max.block.ms": 20_000,
        }
        self.settings = settings | more
        self.config = ProducerConfig.parse(self.settings)
        self.producer = Producer(self.config)
        self.tasks = 0

    @contextmanager
    def committer(self, **more: object) -> Iterator[BatchCommitter]:
        """Have what a process of the driver has."""
        with BrokerClient(self.config) as client:
            yield BatchCommitter(client, self.config, Writer(self.name, f"{self.name}-", f"{self.name}-log", **more))  # type: ignore[arg-type]

    def plan(self, **more: object) -> Plan:
        with self.committer(**more) as committer:
            return committer.plan()

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

    def holder(self) -> Identity:
        """Return who has the driver's id."""
        with BrokerClient(self.config) as client:
            id_ = f"{self.name}-driver"
            return TransactionCoordinator(client, id_, self.config).holder(deadline_after(20_000))

    def visible(self) -> list[bytes | None]:
        wait_for_markers(self.cluster.bootstrap_servers)
        reading = {"bootstrap.servers": self.cluster.bootstrap_servers, "isolation.level": "read_committed"}
        return sorted(value for values in consume_values(reading, self.topic).values() for value in values)  # type: ignore[type-var]


@pytest.fixture
def job(cluster: KafkaCluster, slab_name: str, topic: str) -> Iterator[Job]:
    """Return a writer."""
    cluster.admin.create_topic(topic, partitions=PARTITIONS)
    job = Job(cluster, slab_name, topic)
    yield job
    job.producer.close()
    wait_until_gone(slab_name)


def test_batches_become_visible(job: Job) -> None:
    values = [value for number in range(4) for value in job.batch(number)]
    assert job.visible() == sorted(values)
    plan = job.plan()
    assert (plan.number, plan.decided, plan.source) == (5, 3, "query")


def test_what_is_not_committed_is_aborted(job: Job) -> None:
    """Of an attempt that lost against another one, by the commit; of a batch that failed, by the next plan."""
    plan = job.plan()
    job.write(0, b"slow", b"attempt")
    won = job.write(1, b"fast", b"one")
    job.commit(plan, 0, [won])
    assert job.visible() == [b"fast", b"one"]
    job.plan()
    job.write(0, b"of a batch that failed")
    job.plan()
    assert job.visible() == [b"fast", b"one"]


def test_a_task_can_tell_that_its_batch_is_over(job: Job) -> None:
    """Else the transaction of a task that outlives its batch stays open until its timeout."""
    transactions = job.producer.transactions
    plan = job.plan()
    assert transactions.holder_of(plan.transactional_id) == plan.identity
    with job.committer() as committer:
        committer.end_batch(plan)
    assert transactions.holder_of(plan.transactional_id) != plan.identity
    plan = job.plan()
    written = [job.write(0, b"a")]
    assert transactions.holder_of(plan.transactional_id) == plan.identity
    job.commit(plan, 0, written)
    # Version 1 of the protocol does not raise the epoch at the end of a transaction.
    assert (transactions.holder_of(plan.transactional_id) != plan.identity) is (plan.version >= IMPLICIT)
    assert job.visible() == [b"a"]


def test_a_commit_leaves_a_newer_plans_transactions_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, newer = job.plan(), []
    written = [job.write(0, b"decided")]
    store = WriterId.store

    def store_and_be_slow(self: WriterId, *args: Any) -> tuple[Identity, int]:
        stored = store(self, *args)
        if not newer:
            newer.append(None)
            newer[:] = [job.plan(), job.write(1, b"of the newer plan")]
        return stored

    monkeypatch.setattr(WriterId, "store", store_and_be_slow)
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
def test_the_driver_dies(job: Job, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = job.batch(0)
    plan = job.plan()
    written = [job.write(0, b"a", b"b"), job.write(1, b"c")]
    where, method = STEPS[step]

    def die(*args: object, **kwargs: object) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(where, method, die)
        with pytest.raises(Death):
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
def test_the_driver_dies_between_the_ends(job: Job, ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the plan after that dies, too, before it is in the log: the next one ends the same once more."""
    plan = job.plan()
    written = [job.write(0, b"a"), job.write(1, b"b")]
    end_all = batch_committer.TransactionEnds.end

    def end_some(self: object, transactions: list[PreparedTransaction], **more: object) -> None:
        end_all(self, transactions[:ended], **more)  # type: ignore[arg-type]
        raise Death

    def die(*args: object) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(batch_committer.TransactionEnds, "end", end_some)
        with pytest.raises(Death):
            job.commit(plan, 0, written)
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "append", die)
        with pytest.raises(Death):
            job.plan()
    assert job.plan().decided == 0
    assert job.visible() == [b"a", b"b"]


def test_a_failed_commit_is_ended(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks to abort after a commit has failed, also if it was decided."""
    plan = job.plan()
    written = [job.write(0, b"a")]
    with monkeypatch.context() as patch:
        patch.setattr(BatchCommitter, "_end_decided", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.commit(plan, 0, written)
    with job.committer() as committer:
        committer.end_batch(plan)
    assert job.visible() == [b"a"]
    plan = job.plan()
    job.write(0, b"b")
    with job.committer() as committer:
        committer.end_batch(plan)
    assert job.visible() == [b"a"]


def test_an_older_driver_is_fenced(job: Job) -> None:
    older = job.plan()
    written = job.write(0, b"older")
    newer = job.plan()
    with pytest.raises(ProducerFencedError, match="has been started again"):
        job.commit(older, 0, [written])
    with job.committer() as committer:
        committer.end_batch(older)  # leaves the newer one alone
    job.commit(newer, 0, [job.write(0, b"newer")])
    assert job.visible() == [b"newer"]


def test_a_decided_transaction_was_aborted(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for _ in range(2):
        with pytest.raises(TransactionLostError, match=rf"{written.transactional_id} .* 2 records in {job.topic}-0"):
            job.plan()
    assert job.plan(fail_on_data_loss=False).decided == 0


def test_the_log_is_not_compacted(job: Job) -> None:
    job.cluster.admin.create_topic(f"{job.name}-log", settings={"cleanup.policy": "delete"})
    with pytest.raises(ConfigError, match="set compact"):
        job.plan()


def test_a_deleted_log_refuses_until_the_user_decides(job: Job) -> None:
    """Each scheduler tries again: what is refused once must not write everything a second time."""
    job.batch(0)
    job.cluster.admin.delete_topic(f"{job.name}-log")
    before = job.holder()
    for _ in range(3):
        with pytest.raises(IllegalStateError, match=r"the topic was deleted.* is there twice"):
            job.plan()
        with pytest.raises(IllegalStateError, match="the topic was deleted"), job.committer() as committer:
            committer.recover()
    assert job.holder() == before
    assert job.plan(fail_on_data_loss=False).decided is None
    assert job.plan().number == 2


@pytest.mark.parametrize("step", ["append", "end"])
def test_the_first_plan_of_all_is_interrupted(job: Job, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id was used, and has no state yet: that is no loss. So it is where the rights to write are missing."""
    with monkeypatch.context() as patch:
        patch.setattr({"append": CommitLog, "end": TransactionCoordinator}[step], step, lambda *args, **more: 1 / 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                job.plan()
    assert job.plan().number == (1 if step == "append" else 2)


def forge(job: Job, state: object, *, key: bytes | None = None) -> None:
    """Write a state under the job's key, as anyone can who has the rights to write to the topic."""
    value = state if isinstance(state, bytes) else zlib.compress(json.dumps(state).encode())
    settings: dict[str, Any] = {"bootstrap.servers": job.cluster.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer(settings | {"transactional.id": f"mallory of {job.name}"})
    producer.init_transactions(10)
    producer.begin_transaction()
    key = key or f"{job.name}-driver".encode()
    producer.produce(f"{job.name}-log", value, key, (murmur2(key) & 0x7FFFFFFF) % 16)
    producer.commit_transaction(10)
    wait_for_markers(job.cluster.bootstrap_servers)


def state_of(job: Job, **more: object) -> dict[str, object]:
    fields = {"plan": 9, "decided_in": 9, "batch": 1000, "source": "query", "transactions": []}
    return {"format": 1, "writer": job.name, **fields, **more}


def test_a_forged_state_is_skipped(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    """Else all batches up to the forged one count as written."""
    first = job.batch(0)
    forge(job, state_of(job))
    plan = job.plan()
    assert (plan.number, plan.decided) == (2, 0)
    assert "by other producer ids are skipped" in caplog.text
    job.commit(plan, 1, [job.write(0, b"after it")])
    assert job.visible() == sorted([*first, b"after it"])


def test_a_forged_decision_commits_nothing(job: Job) -> None:
    """It names an open transaction of another's."""
    job.batch(0)
    with Producer(job.settings | {"transactional.id": f"victim of {job.name}"}) as victim:
        victim.init_transactions()
        victim.begin_transaction()
        victim.send(job.topic, b"not yet")
        victim.flush()
        prepared = victim.transactions.prepare()
        forge(job, state_of(job, transactions=[prepared]))
        before = job.visible()
        job.plan()
        assert job.visible() == before


JUNK = {
    "not packed": b"nonsense",
    "cut": zlib.compress(b"{}" * 100)[:-3],
    "not JSON": zlib.compress(b"nonsense"),
    "nested": zlib.compress(b"[" * 200_000),
    "bomb": zlib.compress(bytes(100 << 20), 9),
    "of another version": zlib.compress(b'{"format":99}'),
    "without fields": zlib.compress(b'{"format":1,"writer":"a"}'),
    "empty": b"",
}


def test_junk_does_not_stop_a_query(job: Job) -> None:
    job.batch(0)
    for junk in JUNK.values():
        forge(job, junk)
    assert job.plan().decided == 0


class Decisions:
    """Writers whose batches have no transactions: what counts is which batches are decided."""

    def __init__(self, cluster: KafkaCluster, log: str) -> None:
        self.cluster, self.log = cluster, log
        self.config = ProducerConfig.parse(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": log, "max.block.ms": 20_000}
        )
        self.client = BrokerClient(self.config)

    def committer(self, name: str, **more: Any) -> BatchCommitter:
        return BatchCommitter(self.client, self.config, Writer(name, f"{name}-", self.log, **more))

    def batch(self, name: str, number: int) -> None:
        committer = self.committer(name)
        plan = committer.plan()
        assert plan.decided == (number - 1 if number else None), name
        committer.commit(plan, number, "query", [])

    def holder(self, name: str) -> Identity:
        return TransactionCoordinator(self.client, f"{name}-driver", self.config).holder(deadline_after(20_000))

    def wait_for_another_id(self, name: str, former: int) -> None:
        wait_until(lambda: self.holder(name).producer_id != former, "the last transaction has ended completely")


@pytest.fixture
def decisions(cluster: KafkaCluster, topic: str) -> Iterator[Decisions]:
    """Return writers with a log of their own."""
    decisions = Decisions(cluster, topic)
    with decisions.client:
        yield decisions


OLDER, NEWER = Driver("a", 1, 1, "2026-01-01"), Driver("b", 2, 1, "2026-01-02")


def test_an_older_driver_does_not_fence_the_newer_one(decisions: Decisions) -> None:
    """Each plan would take over again, so both would fail."""
    older = decisions.committer(decisions.log, driver=OLDER)
    newer = decisions.committer(decisions.log, driver=NEWER)
    older.commit(older.plan(), 0, "query", [])
    begun = older.plan()
    plan = newer.plan()
    named = "another driver now: process 2 on host b, started 2026-01-02. This one, process 1 on host a"
    with pytest.raises(ProducerFencedError, match=named):
        older.commit(begun, 1, "query", [])
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match=named):
            older.plan()
    older.end_batch(None)
    newer.commit(plan, 1, "query", [])
    plan = newer.plan()
    assert plan.decided == 1
    assert named in older.successor(begun)
    newer.commit(plan, 2, "query", [])
    third = decisions.committer(decisions.log, driver=Driver("a", 1, 2, "2026-01-03"))
    assert third.plan().decided == 2
    with pytest.raises(ProducerFencedError, match="process 1 on host a, started 2026-01-03"):
        newer.plan()


def test_a_replaced_driver_goes_on_when_the_newer_one_is_gone(decisions: Decisions) -> None:
    """As two notebooks do that run the same query in turns."""
    me = Driver.of(os.getpid())
    mine, other = (decisions.committer(decisions.log, driver=each) for each in (me, me._replace(ticks=me.ticks - 1)))
    mine.plan()
    other.plan()
    assert mine.plan().number == 3


def test_a_failed_batch_is_ended_without_its_plan(job: Job) -> None:
    """A query that is stopped before its first task is done has no result that could have a plan."""
    job.plan(driver=OLDER)
    written = job.write(0, b"a")
    with BrokerClient(job.config) as client:
        transactions = Transactions(client, job.config)
        with job.committer(driver=NEWER) as committer:
            committer.end_batch(None)
        assert transactions.find(written.transactional_id, (ONGOING,), deadline_after(20_000))
        with job.committer(driver=OLDER) as committer:
            committer.end_batch(None)
        assert not transactions.find(written.transactional_id, (ONGOING,), deadline_after(20_000))
    assert job.plan(driver=OLDER).number == 2


LEFT = range(-1, 3)
"""Epochs that a producer id has left: one batch takes up to three."""


def test_epochs_are_used_up(decisions: Decisions) -> None:
    """The brokers give the driver a new producer id then, at any step of a batch."""
    names = {left: f"{decisions.log}-{left}" for left in LEFT}
    for name in names.values():
        decisions.batch(name, 0)
    former = {left: decisions.holder(name).producer_id for left, name in names.items()}
    set_epochs(decisions.cluster, {f"{name}-driver": (former[left], LAST_EPOCH - left) for left, name in names.items()})
    for left, name in names.items():
        for number in range(1, 5):
            decisions.batch(name, number)
        decisions.wait_for_another_id(name, former[left])


def test_a_driver_dies_when_its_epochs_are_used_up(decisions: Decisions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after it got the new producer id: no record of the log has that yet, or one without its end."""
    names = {(left, step): f"{decisions.log}-{left}-{step}" for left in LEFT for step in ("append", "end")}
    for name in names.values():
        decisions.batch(name, 0)
    former = {key: decisions.holder(name).producer_id for key, name in names.items()}
    set_epochs(decisions.cluster, {f"{name}-driver": (former[key], LAST_EPOCH - key[0]) for key, name in names.items()})
    for (left, step), name in names.items():
        dying = {"append": CommitLog, "end": TransactionCoordinator}[step]
        die = _die_with_another_id(former[left, step], getattr(dying, step))
        number = 0
        with monkeypatch.context() as patch, suppress(Death):
            patch.setattr(dying, step, die)
            for number in range(1, 5):
                decisions.batch(name, number)
        decisions.wait_for_another_id(name, former[left, step])
        plan = decisions.committer(name).plan()
        assert plan.decided in (number - 1, number)
        decisions.committer(name).commit(plan, number + 1, "query", [])
        decisions.batch(name, number + 2)


def _die_with_another_id(former: int, method: Callable[..., Any]) -> Callable[..., Any]:
    def die(self: Any, *args: Any, **more: Any) -> Any:
        me = next(each for each in args if isinstance(each, Identity))
        if me.producer_id != former:
            raise Death
        return method(self, *args, **more)

    return die


def test_a_state_far_from_the_end_is_found(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writers share the partition; one of them has a transaction open."""
    monkeypatch.setattr("shmaccum.transactions.commit_log._PARTITIONS", 1)
    monkeypatch.setattr("shmaccum.transactions.commit_log._FIRST_LOOK", 2)
    first = job.plan()
    with BrokerClient(job.config) as client:
        for other in range(3):
            writer = Writer(f"other {other}", f"{job.name}-other-{other}-", f"{job.name}-log")
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


def test_a_coordinator_has_just_moved(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster knows none for one of the ids at first."""
    plan = job.plan()
    written = [job.write(0, b"a"), job.write(1, b"b")]
    ask, unavailable = BrokerClient.ask, []

    def ask_when_moved(self: BrokerClient, node: Node | None, make: MakeCall, deadline_ms: float) -> Any:
        response = ask(self, node, make, deadline_ms)
        if len(getattr(response, "coordinators", ())) == len(written) and not unavailable:
            response.coordinators[0].error_code = CoordinatorNotAvailableError.code
            unavailable.append(response.coordinators[0].key)
        return response

    monkeypatch.setattr(BrokerClient, "ask", ask_when_moved)
    job.commit(plan, 0, written)
    assert unavailable == [written[0].transactional_id]
    assert job.visible() == [b"a", b"b"]


@pytest.mark.parametrize("trouble", ["frozen", "lost"])
def test_no_call_waits_for_ever(job: Job, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query's stop waits for its abort: also where a broker is frozen, or every connection to it is lost."""
    plan = job.plan()
    written = [job.write(number, b"a") for number in range(2)]
    config = ProducerConfig.parse(job.settings | {"max.block.ms": 300})
    calls: dict[str, Callable[[BatchCommitter], object]] = {
        "commit": lambda committer: committer.commit(plan, 0, "query", written),
        "end a batch": lambda committer: committer.end_batch(plan),
        "plan": BatchCommitter.plan,
        "end a driver's": lambda committer: committer.end_batch(None),
        "recover": BatchCommitter.recover,
    }
    node = job.cluster.nodes[1]
    for name, call in calls.items():
        for requests in (0, 4, 8):  # that are answered before
            count = itertools.count()
            ask_all = BrokerClient.ask_all

            def troubled(
                self: BrokerClient,
                exchanges: Sequence[Exchange],
                deadline_ms: float,
                *,
                count: Iterator[int] = count,
                requests: int = requests,
                ask_all: Callable[..., None] = ask_all,
            ) -> None:
                if next(count) >= requests:
                    if trouble == "lost":
                        for each in exchanges:
                            each.error = NetworkError("lost")
                        return
                    node.pause()
                ask_all(self, exchanges, deadline_ms)

            try:
                with monkeypatch.context() as patch, BrokerClient(config) as client:
                    patch.setattr(BrokerClient, "ask_all", troubled)
                    writer = Writer(job.name, f"{job.name}-", f"{job.name}-log", driver=Driver.of(os.getpid()))
                    with suppress(KafkaError):
                        call(BatchCommitter(client, config, writer))
            finally:
                node.resume()
            assert next(count) > 0, name
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


@pytest.mark.parametrize("level", [0, 1])
def test_empty_arrays_of_a_hostile_broker(job: Job, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of one element each: an error that a caller expects, not an IndexError."""
    config = ProducerConfig.parse(job.settings | {"max.block.ms": 300})
    ask_all = BrokerClient.ask_all
    job.batch(0)
    for hostile in range(14):  # requests from here on
        count = itertools.count()

        def answer_with_nothing(
            self: BrokerClient,
            exchanges: Sequence[Exchange],
            deadline_ms: float,
            *,
            count: Iterator[int] = count,
            hostile: int = hostile,
        ) -> None:
            ask_all(self, exchanges, deadline_ms)
            if next(count) >= hostile:
                for each in exchanges:
                    if each.response is not None:
                        emptied(each.response, level)

        with monkeypatch.context() as patch, BrokerClient(config) as client, suppress(KafkaError):
            patch.setattr(BrokerClient, "ask_all", answer_with_nothing)
            committer = BatchCommitter(client, config, Writer(job.name, f"{job.name}-", f"{job.name}-log"))
            committer.end_batch(committer.plan())
    with job.committer() as committer:
        committer.recover()


def test_without_a_broker() -> None:
    config = ProducerConfig.parse(
        {"bootstrap.servers": "localhost:1", "max.block.ms": 500, "transactional.id": "a", "reconnect.backoff.ms": 50}
    )
    with BrokerClient(config) as client, pytest.raises(KafkaError):
        BatchCommitter(client, config, Writer("a", "a-")).plan()
