"""Case 9: exactly once from PySpark against at least once, in a stream and in jobs, and the commit alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.spark import check, stream
from tools.benchmark.contestants import OURS
from tools.benchmark.environment import Environment
from tools.benchmark.process_group import Member
from tools.benchmark.settings import Settings, for_shmaccum
from tools.benchmark.spark.jobs import EXACTLY_ONCE, SPARK_SINK, Job, Query
from tools.benchmark.spark.session import FIGURES, QUERY_FIGURES, Session, figures

ROWS: Final = 1_000_000
TASKS: Final = (8, 200)
ROW_SIZE: Final = 100
INTERVAL_S: Final = 10.0
"""Of the stream's trigger."""
MICRO_BATCHES: Final = 3
PARTITIONS: Final = 4
WARM_UP_TASKS: Final = 4
WARM_UP_ROWS: Final = 20_000
TRANSACTIONS: Final = 200
COMMIT: Final = "commit"
"""Name of the variant of the commit alone."""

_SMOKE_TASKS: Final = (2, 8)
_SMOKE_INTERVAL_S: Final = 1.0
_SMOKE_MICRO_BATCHES: Final = 1
_SMOKE_TRANSACTIONS: Final = 10
_RECORDS_EACH: Final = PARTITIONS
"""Records of a transaction: one in each partition."""
_TIMEOUT_MS: Final = 900_000


class ExactlyOnce:
    """Streams, and jobs back to back, in one warm session as in `tools.benchmark.cases.spark`; `BatchCommitter` alone.

    A stream is what exactly once is for: its cost is measured where it occurs, with the pauses between micro-batches.
    Jobs show the same work without pauses.
    """

    number = 9
    name = "exactly-once"
    title = "Exactly once"

    def __init__(self) -> None:
        self._session: Session | None = None

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return the commit of many transactions; micro-batches in few tasks and in many; jobs of the same sizes."""
        session = self._session = Session(environment)
        rows = environment.count(ROWS, least=1_000)
        number = _SMOKE_MICRO_BATCHES if environment.smoke else MICRO_BATCHES
        interval_s = _SMOKE_INTERVAL_S if environment.smoke else INTERVAL_S
        contestants = (EXACTLY_ONCE, OURS, SPARK_SINK)
        each = list(zip(TASKS, _SMOKE_TASKS if environment.smoke else TASKS, strict=True))
        streams = [
            Variant(
                name=stream_variant(called),
                title=f"a stream's {number} micro-batches of {rows:,} rows in {tasks} tasks, every {interval_s:g} s",
                contestants=contestants,
                turn=lambda contestant, tasks=tasks: stream(  # type: ignore[misc]
                    environment,
                    session,
                    Query(Job(contestant, tasks, rows, ROW_SIZE, "", "", Settings()), interval_s, number),
                ),
                figures=QUERY_FIGURES,
                broker=APACHE,
                facts=session.facts(tasks, rows // tasks, ROW_SIZE, PARTITIONS),
                rounds_at_most=3,
                warm_up=tasks == each[0][1],  # the session's first jobs of this size, which the JVM has yet to compile
                turn_s=48.0,
            )
            for called, tasks in each
        ]
        jobs = [
            Variant(
                name=job_variant(called),
                title=f"a job of {rows:,} rows in {tasks} tasks",
                contestants=contestants,
                turn=lambda contestant, tasks=tasks: _job(  # type: ignore[misc]
                    environment, session, Job(contestant, tasks, rows, ROW_SIZE, "", "", Settings())
                ),
                figures=FIGURES,
                broker=APACHE,
                facts=session.facts(tasks, rows // tasks, ROW_SIZE, PARTITIONS),
                warm_up=False,
                turn_s=6.0,
            )
            for called, tasks in each
        ]
        transactions = _SMOKE_TRANSACTIONS if environment.smoke else TRANSACTIONS
        commit = Variant(
            name=COMMIT,
            title=f"commit of {transactions} transactions",
            contestants=(OURS,),
            turn=lambda _: _commit(environment, transactions),
            figures=("commit_ms", "commit_cpu_ms", "plan_ms", "write_ms"),
            broker=APACHE,
            facts={"transactions": transactions, "records_each": _RECORDS_EACH, "partitions": PARTITIONS},
            turn_s=8.0,
        )
        return [
            commit,
            *streams,
            *jobs,
        ]  # the session stays until the end, and `Environment.measure` waits for its processes

    def close(self) -> None:
        """Stop the session."""
        if self._session is not None:
            self._session.close()


def stream_variant(tasks: int) -> str:
    """Return the name of the stream in this many tasks; a smoke run has fewer, under the same name."""
    return f"stream-{tasks}-tasks"


def job_variant(tasks: int) -> str:
    """Return the name of the job in this many tasks."""
    return f"job-{tasks}-tasks"


def _job(environment: Environment, session: Session, job: Job) -> dict[str, float]:
    broker = environment.broker(APACHE)
    job = job._replace(servers=broker.servers)
    if not environment.smoke:
        with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
            session.run(job._replace(topic=topic, tasks=WARM_UP_TASKS, rows=WARM_UP_ROWS))
    with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
        job = job._replace(topic=topic)
        wall_s, used = session.measure(job)
        check(environment, job, job.rows)
    return figures(job, wall_s, used)


def _commit(environment: Environment, transactions: int) -> dict[str, float]:
    """Plan, write and commit a batch of transactions, into a new topic, by a writer that has written a batch before."""
    broker, name = environment.broker(APACHE), environment.new_name()
    with environment.topic(broker, name, PARTITIONS) as topic:

        def work(member: Member) -> None:
            member.wait_for_go()
            member.done(_written(broker.servers, name, topic, transactions))

        (report,) = environment.measure(broker, [work]).reports
        environment.check_committed(broker, topic, (transactions + 1) * _RECORDS_EACH)
    times: dict[str, float] = report.result
    return times


def _written(servers: str, name: str, topic: str, transactions: int) -> dict[str, float]:
    """Do the work of a driver and its tasks; return the milliseconds of its parts.

    Raises:
        RuntimeError: the broker's transactions are not of version 2.
    """
    from shmaccum import Producer
    from shmaccum.config import ProducerConfig
    from shmaccum.transactions.batch_committer import BatchCommitter
    from shmaccum.transactions.broker_client import BrokerClient
    from shmaccum.transactions.coordinator import IMPLICIT
    from shmaccum.transactions.writer_id import Writer

    own = {"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": _TIMEOUT_MS}
    config = ProducerConfig.parse(for_shmaccum(Settings(), name) | own)
    writer = Writer(name, f"{name}-")
    times: dict[str, float] = {}
    with Producer(config) as producer:

        def write(number: int) -> Any:
            producer.transactions.init(f"{name}-{number}")
            producer.transactions.begin()
            for partition in range(PARTITIONS):
                producer.send(topic, b"value", partition=partition)
            return producer.transactions.prepare()

        for batch, count in enumerate((1, transactions)):  # the first one finds coordinators, leaders and the log
            start = time.monotonic()
            with BrokerClient(config) as client:
                plan = BatchCommitter(client, config, writer).plan()
            times["plan_ms"] = _milliseconds_since(start)
            if plan.version < IMPLICIT:
                raise RuntimeError(f"transaction.version is {plan.version}, not {IMPLICIT}")
            start = time.monotonic()
            written = [write(number) for number in range(count)]
            times["write_ms"] = _milliseconds_since(start)
            start, processor = time.monotonic(), time.process_time()
            with BrokerClient(config) as client:  # of its own, as the driver's processes have
                BatchCommitter(client, config, writer).commit(plan, batch, name, written)
            times["commit_ms"] = _milliseconds_since(start)
            times["commit_cpu_ms"] = (time.process_time() - processor) * 1000
    return times


def _milliseconds_since(start: float) -> float:
    return (time.monotonic() - start) * 1000
