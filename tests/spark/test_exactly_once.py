"""Every row once, as a read_committed consumer of Apache Kafka sees it, whatever task, job or query fails."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from brokers import MakeCluster, consume, consume_values, wait_for_markers
from processes import wait_until
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark_writes import stalling_query, write, write_stream

from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError, IllegalStateError, NetworkError, ProducerFencedError
from shmaccum.spark.exactly_once import ExactlyOnce, TaskPlan, TransactionResult, _TransactionalIds
from shmaccum.transactions import driver_watch
from shmaccum.transactions.administration import ONGOING, Transactions
from shmaccum.transactions.batch_committer import Plan
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import Identity, PreparedTransaction, deadline_after
from shmaccum.transactions.writer_id import Writer
from shmaccum.transactions.writer_state import Driver
from tools.kafka import KafkaCluster

Options = dict[str, str]
ROWS = 4_000


@pytest.fixture
def once(options: Options, kafka: KafkaCluster, topic: str) -> Options:
    """Return the options of a write that is exactly once: a slab of these tests' own, ids of each test's own."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.shmaccum.name": f"{options['kafka.shmaccum.name']}-once",
        "kafka.transactional.id": f"once.{topic}.",
        "kafka.sender.idle.ms": "200",
        "kafka.buffer.memory": str(4 << 20),
        "exactlyOnce": "true",
    }


@pytest.fixture
def target(kafka: KafkaCluster, topic: str) -> str:
    """Return a topic with partitions."""
    kafka.admin.create_topic(topic, partitions=3)
    return topic


def numbers(spark: SparkSession, count: int, tasks: int = 1) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS value")


def seen(kafka: KafkaCluster, topic: str, isolation: str = "read_committed") -> list[int]:
    wait_for_markers(kafka.bootstrap_servers)
    reading: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": isolation}
    return sorted(int(value or 0) for values in consume_values(reading, topic).values() for value in values)


@contextmanager
def looking(kafka: KafkaCluster, options: Options) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns the ids of a job's open transactions."""
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap_servers})
    with BrokerClient(config) as client:
        transactions, prefix = Transactions(client, config), options["kafka.transactional.id"]

        def open_ids() -> list[str]:
            return [each.transactional_id for each in transactions.find(prefix, (ONGOING,), deadline_after(30_000))]

        yield open_ids


def assert_none_is_open(kafka: KafkaCluster, options: Options) -> None:
    """Assert that no transaction stays open. A failed attempt aborts its own when Spark has given it up already."""
    with looking(kafka, options) as open_ids:
        wait_until(lambda: not open_ids())


def failing(rows: DataFrame, attempts: int) -> DataFrame:
    """Have the first attempts of a task fail, after most of its rows."""

    def fail_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() < attempts:
            raise RuntimeError("this attempt is to fail")

    return rows.mapInArrow(fail_late, rows.schema)


def test_tasks_fail_and_so_does_a_job(spark: SparkSession, once: Options, kafka: KafkaCluster, target: str) -> None:
    """A job without a name leaves nothing in the commit log: a state that no later run replaces would stay for ever."""
    log = f"{target}-log"
    job = once | {"topic": target, "commitLogTopic": log}
    write(failing(numbers(spark, ROWS, tasks=2), 1), job)
    write(numbers(spark, 0), job)  # no rows, no transaction
    # No task is left to begin behind the abort: its transaction would be open until its timeout.
    with pytest.raises(PythonException, match="is to fail"):
        write(failing(numbers(spark, ROWS, tasks=2), 2), job)
    assert seen(kafka, target) == list(range(ROWS))
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": "read_committed"}
    last = {each.key(): each.value() for messages in consume(reading, log).values() for each in messages}
    assert [*last.values()] == [None] * 3
    assert_none_is_open(kafka, once)


def test_a_job_runs_again(spark: SparkSession, once: Options, kafka: KafkaCluster, target: str) -> None:
    """A deleted commit log refuses it each time that a scheduler does so: the rows must not be there twice."""
    log = f"{target}-log"
    job = once | {"topic": target, "txnAppId": target, "commitLogTopic": log}
    for version in ("1", "1", "0", "2"):
        write(numbers(spark, 100), job, txnVersion=version)
    assert seen(kafka, target) == sorted([*range(100)] * 2)
    kafka.admin.delete_topic(log)
    for _ in range(2):
        with pytest.raises(AnalysisException, match="the topic was deleted"):
            write(numbers(spark, 100), job, txnVersion="2")
    assert seen(kafka, target) == sorted([*range(100)] * 2)
    write(numbers(spark, 100), job, txnVersion="2", failOnDataLoss="false")
    assert seen(kafka, target) == sorted([*range(100)] * 3)


def test_a_query_starts_again(
    spark: SparkSession, once: Options, kafka: KafkaCluster, target: str, tmp_path: Path
) -> None:
    """Also where its driver ended between the last EndTxn and Spark's own log of commits; not without a checkpoint."""
    arriving, checkpoint, options = tmp_path / "arriving", tmp_path / "checkpoint", once | {"topic": target}
    arriving.mkdir()

    def run(*batches: range) -> None:
        for values in batches:
            (arriving / f"{values.start}.txt").write_text("".join(f"{value}\n" for value in values))
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(arriving))
        write_stream(rows, options, checkpoint)

    run(range(100), range(100, 200))
    assert seen(kafka, target) == list(range(200))
    for file in ("1", ".1.crc"):
        (checkpoint / "commits" / file).unlink()
    run(range(200, 300))
    assert seen(kafka, target) == list(range(300))

    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="was the checkpoint deleted"):
        run()
    options["txnAppId"] = "another"
    run()
    assert seen(kafka, target) == sorted([*range(300)] * 2)
    assert_none_is_open(kafka, once)


def test_a_job_in_foreach_batch_is_known_by_its_own_version(
    spark: SparkSession, once: Options, kafka: KafkaCluster, target: str, tmp_path: Path
) -> None:
    """Batch 1 of the query is a smaller number than version 100, which its batch 0 wrote."""
    job = once | {"topic": target, "txnAppId": target}

    def write_twice(batch: DataFrame, number: int) -> None:
        for _ in range(2):
            write(batch, job, txnVersion=str(100 + number))

    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
        rows = spark.readStream.text(str(tmp_path)).writeStream.foreachBatch(write_twice)
        query = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert seen(kafka, target) == [0, 1]
    write(numbers(spark, 1), job, txnVersion="102")  # as a job of its own
    assert seen(kafka, target) == [0, 0, 1]


def test_a_query_is_stopped_amid_a_batch(
    spark: SparkSession, once: Options, kafka: KafkaCluster, target: str, tmp_path: Path
) -> None:
    """Once one of its tasks has written, the other perhaps not: consumers go on at once, not after a timeout.

    If the driver ended instead, its watch would do that: `test_driver_watch`, and the examples' stream.
    """
    stalling = tmp_path / "stalling"  # Spark's slots are for later tests, too
    options = once | {"topic": target, "checkpointLocation": str(tmp_path / "checkpoint")}
    query = stalling_query(spark, options, stalling)
    with looking(kafka, once) as open_ids:
        try:
            wait_until(lambda: open_ids() or not query.isActive)
            assert query.isActive, query.exception()
            driver = Driver.of(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
            with socket.socket(socket.AF_UNIX) as probe:
                wait_until(lambda: probe.connect_ex(driver_watch.socket_name(driver)) == 0, "the driver is watched")
            query.stop()
            assert_none_is_open(kafka, once)
        finally:
            stalling.unlink()
            query.stop()


EXACTLY_ONCE = {"exactlyOnce": "true"}


@pytest.mark.parametrize(
    ("is_stream", "options", "message"),
    [
        (False, {"exactlyOnce": "yes"}, "option exactlyOnce = 'yes' is not true or false"),
        (False, {"txnAppId": "a"}, "option txnAppId needs exactlyOnce=true"),
        (False, {"kafka.transactional.id": "a"}, "kafka.transactional.id needs exactlyOnce=true"),
        (False, {"commitLogTopic": "a"}, "option commitLogTopic needs exactlyOnce=true"),
        (False, EXACTLY_ONCE | {"txnAppId": "a"}, "txnAppId and txnVersion go together"),
        (False, EXACTLY_ONCE | {"txnAppId": "", "txnVersion": "1"}, "txnAppId and txnVersion go together"),
        (False, EXACTLY_ONCE | {"txnAppId": "a", "txnVersion": "1.5"}, "txnVersion = '1.5' is not an integer"),
        (False, EXACTLY_ONCE | {"txnAppId": "a", "txnVersion": "-1"}, "txnVersion = '-1' is not an integer from 0 on"),
        (False, EXACTLY_ONCE | {"kafka.acks": "1"}, "acks"),
        (False, EXACTLY_ONCE | {"kafka.transport": "log", "kafka.log.dir": "x"}, "transactions need transport kafka"),
        (True, EXACTLY_ONCE, "needs the option checkpointLocation, or txnAppId"),
        (True, EXACTLY_ONCE | {"checkpointLocation": "x", "txnVersion": "1"}, "query numbers its batches itself"),
    ],
)
def test_wrong_options_of_a_job_and_of_a_query(is_stream: bool, options: Options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExactlyOnce.of({name.lower(): value for name, value in options.items()}, is_stream=is_stream)


@pytest.mark.parametrize(
    ("now", "before", "message"),
    [("q2", "q1", "batch 0 of query 'q2' could be one of query 'q1'"), ("q2", "", "could be one of a batch job")],
)
def test_two_that_have_one_name_are_refused(
    now: str, before: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan("driver", 2, Identity(1, 2), 2, 3, 5, before)
    task = TaskPlan(plan, Writer("w", "p"), None)
    monkeypatch.setattr("shmaccum.spark.exactly_once._batch_number", lambda: 0)
    with pytest.raises(IllegalStateError, match=f"{message}.* or do two queries or jobs have the same one"):
        task.is_decided(now)


@pytest.mark.parametrize(
    ("spellings", "name"),
    [
        (("/a/b", "/a/b/", "/a//b"), "/a/b"),
        (("file:/a", "file:///a", "file:///a/"), "file:/a"),
        (("hdfs://n:8020/a", "hdfs://n:8020//a/"), "hdfs://n:8020/a"),
        (("s3a://bucket/a b/", "s3a://bucket/a b"), "s3a://bucket/a b"),
        (("/", "///"), "/"),
        (("a", "a/"), "a"),
    ],
)
def test_a_query_is_the_same_however_its_checkpoint_is_spelt(spellings: tuple[str, ...], name: str) -> None:
    """Otherwise a batch that Spark repeats after a restart is stored twice."""
    for spelling in spellings:
        given = {"exactlyonce": "true", "kafka.bootstrap.servers": "here:1", "checkpointlocation": spelling}
        query = ExactlyOnce.of(given, is_stream=True)
        assert query is not None
        assert query.name == name


def test_a_timeout_beyond_the_brokers_limit(spark: SparkSession, once: Options, target: str) -> None:
    beyond = {"topic": target, "kafka.transaction.timeout.ms": "900001"}
    with pytest.raises(
        AnalysisException, match=r"kafka\.transaction\.timeout\.ms exceeds .* transaction\.max\.timeout\.ms"
    ):
        write(numbers(spark, 1), once, **beyond)


@pytest.fixture
def writing(once: Options) -> ExactlyOnce:
    """Return a job's writing."""
    made = ExactlyOnce.of({name.lower(): value for name, value in once.items()}, is_stream=False)
    assert made is not None
    return made


def row(value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": [value]})


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_task_that_outlives_its_batch(
    once: Options, writing: ExactlyOnce, kafka: KafkaCluster, target: str, end: str
) -> None:
    """One that Spark has given up, or that another attempt has overtaken: it writes on for a while."""
    plan, columns = writing.plan(), {"value": "binary"}
    *_, result = plan.write([row(b"0")], writing.config, target, columns)

    def rows() -> Iterator[pa.RecordBatch]:
        if end == "commit":
            writing.commit(0, [result])
        else:
            writing.end_batch(plan.plan)
        yield row(b"0")

    def more_rows() -> Iterator[pa.RecordBatch]:
        yield row(b"1")
        pytest.fail("the task waits for more rows in its open transaction")

    # The end has listed what is open by then, and Spark kills a task that waits for more rows.
    for late in (rows(), more_rows(), more_rows()):
        with pytest.raises(ProducerFencedError, match="plan 1 is over"):
            plan.write(late, writing.config, target, columns)
    assert_none_is_open(kafka, once)
    assert seen(kafka, target) == ([0] if end == "commit" else [])


@pytest.fixture
def older(kafka_cluster: MakeCluster) -> KafkaCluster:
    """Return a broker with version 1 of the transaction protocol."""
    cluster = kafka_cluster(features={"transaction.version": 1})
    cluster.start()
    return cluster


def test_rows_behind_the_end_of_their_batch_in_version_1(once: Options, older: KafkaCluster, target: str) -> None:
    """The look at the plan that follows a task's first rows has found it alive: the other rows open again."""
    older.admin.create_topic(target, partitions=2)
    given = {name.lower(): value for name, value in once.items()}
    given |= {"kafka.bootstrap.servers": older.bootstrap_servers, "kafka.shmaccum.name": f"{target}-older"}
    writing = ExactlyOnce.of(given, is_stream=False)
    assert writing is not None
    plan = writing.plan()

    def rows() -> Iterator[pa.RecordBatch]:
        for partition in (0, 1):
            yield pa.record_batch({"value": [b"0"], "partition": pa.array([partition], pa.int32())})
            writing.end_batch(plan.plan)

    with pytest.raises(ProducerFencedError, match="plan 1 is over"):
        plan.write(rows(), writing.config, target, {"value": "binary", "partition": "int"})
    assert_none_is_open(older, {**once, "kafka.bootstrap.servers": older.bootstrap_servers})
    assert seen(older, target) == []


def test_an_id_is_used_once_under_a_plan() -> None:
    ids = _TransactionalIds()

    def take(plan: int) -> str:
        with ids.next("p-", plan) as (chosen, following):
            next_ones[:] = following
            return chosen

    next_ones: list[str] = []
    first = [take(1)]
    expected = next_ones[:2]
    first += [take(1), take(1)]
    assert first[1:] == expected
    assert len(set(first)) == 3
    assert [take(2), take(2)] == first[:2]
    with pytest.raises(ProducerFencedError, match="plan 1 is over"):
        take(1)
    with pytest.raises(NetworkError), ids.next("p-", 2):
        raise NetworkError("while the request was under way")
    assert take(3) not in first
    assert _TransactionalIds().next("p-", 1) is not None
    with _TransactionalIds().next("p-", 1) as (of_another_process, _):
        assert of_another_process not in first


def test_results_of_an_earlier_plan_are_refused() -> None:
    """Before the decision: the next plan has aborted their transactions."""
    once = ExactlyOnce.of({"exactlyonce": "true", "kafka.bootstrap.servers": "localhost:1"}, is_stream=False)
    assert once is not None
    results = []
    for number in (4, 5):
        plan = Plan("once-driver", number, Identity(1, number), 2, 0, None, "")
        transaction = PreparedTransaction(f"once-{number}", 2, 0, 2, ())
        results.append(TransactionResult(plan, "", transaction))
    with pytest.raises(IllegalStateError, match=r"batch 7 has results of tasks of different plans: \[4, 5\]"):
        once.commit(7, results)
