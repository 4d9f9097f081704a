"""Case 9: exactly once from PySpark against at least once, in a stream and in jobs, and the commit alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Case, Turn, Variant
from tools.benchmark.contestants import OURS
from tools.benchmark.environment import Environment, Member
from tools.benchmark.settings import Settings, for_shmaccum
from tools.benchmark.spark.jobs import EXACTLY_ONCE as EXACTLY
from tools.benchmark.spark.jobs import PARTITIONS, SPARK_SINK, Job, Query
from tools.benchmark.spark.session import FIGURES, QUERY_FIGURES, Session

ROWS: Final = 1_000_000
TASKS: Final = (8, 200)
INTERVAL_S: Final = 10.0
"""Of the stream's trigger."""
MICRO_BATCHES: Final = 3
TRANSACTIONS: Final = 200
"""Each has one record in each partition."""
_SMOKE_TASKS: Final = (2, 8)
_SMOKE_TRANSACTIONS: Final = 10
_TIMEOUT_MS: Final = 900_000


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return the commit of many transactions; micro-batches in few tasks and in many; jobs of the same sizes.

    A stream is what exactly once is for: its cost is measured where it occurs, with the pauses between micro-batches.
    Jobs show the same work without pauses. The session stays until the end of the case, so the commit comes before.
    """
    session, smoke = Session(environment), environment.smoke
    rows = environment.count(ROWS, least=1_000)
    number, interval_s = (1, 1.0) if smoke else (MICRO_BATCHES, INTERVAL_S)
    transactions = _SMOKE_TRANSACTIONS if smoke else TRANSACTIONS
    names = dict(zip(_SMOKE_TASKS if smoke else TASKS, TASKS, strict=True))

    def variant(tasks: int, name: str, title: str, turn: Turn, figures: Sequence[str], **options: Any) -> Variant:
        facts = session.facts(tasks, rows // tasks)
        name = f"{name}-{names[tasks]}-tasks"  # also of a smoke run, which has fewer
        return Variant(name, title, (EXACTLY, OURS, SPARK_SINK), turn, figures, APACHE, facts=facts, **options)

    def stream(tasks: int) -> Variant:
        return variant(
            tasks,
            "stream",
            f"a stream's {number} micro-batches of {rows:,} rows in {tasks} tasks, every {interval_s:g} s",
            lambda contestant: session.stream(Query(Job(contestant, tasks, rows), interval_s, number)),
            QUERY_FIGURES,
            rounds_at_most=3,
            warm_up=tasks == min(names),  # the session's first jobs of this size, which the JVM has yet to compile
        )

    def job(tasks: int) -> Variant:
        title = f"a job of {rows:,} rows in {tasks} tasks"
        turn = lambda contestant: session.run_job(Job(contestant, tasks, rows))  # noqa: E731
        return variant(tasks, "job", title, turn, FIGURES, warm_up=False)

    commit = Variant(
        name="commit",
        title=f"commit of {transactions} transactions",
        contestants=(OURS,),
        turn=lambda _: _commit(environment, transactions),
        figures=("commit_ms", "commit_cpu_ms", "plan_ms", "write_ms"),
        broker=APACHE,
        facts={"transactions": transactions, "records_each": PARTITIONS, "partitions": PARTITIONS},
    )
    return [commit, *map(stream, names), *map(job, names)]


def _commit(environment: Environment, transactions: int) -> dict[str, float]:
    """Plan, write and commit a batch of transactions, into a new topic, by a writer that has written a batch before."""
    broker = environment.broker(APACHE)
    with environment.topic(broker, PARTITIONS) as topic:

        def work(member: Member) -> None:
            member.wait_for_go()
            member.done(_written(broker.servers, topic, transactions))

        (report,) = environment.measure(broker, [work]).reports
        environment.check_committed(broker, topic, (transactions + 1) * PARTITIONS)
    times: dict[str, float] = report.result
    return times


def _written(servers: str, topic: str, transactions: int) -> dict[str, float]:
    """Do the work of a driver and its tasks; return the milliseconds of its parts."""
    from shmaccum import Producer
    from shmaccum.config import ProducerConfig
    from shmaccum.transactions.batch_committer import BatchCommitter
    from shmaccum.transactions.broker_client import BrokerClient
    from shmaccum.transactions.coordinator import IMPLICIT
    from shmaccum.transactions.writer_id import Writer

    own = {"bootstrap.servers": servers, "transactional.id": topic, "transaction.timeout.ms": _TIMEOUT_MS}
    config = ProducerConfig.parse(for_shmaccum(Settings(), topic) | own)
    writer = Writer(topic, f"{topic}-")
    times: dict[str, float] = {}
    with Producer(config) as producer:

        def write(number: int) -> Any:
            producer.transactions.init(f"{topic}-{number}")
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
                BatchCommitter(client, config, writer).commit(plan, batch, topic, written)
            times["commit_ms"] = _milliseconds_since(start)
            times["commit_cpu_ms"] = (time.process_time() - processor) * 1000
    return times


def _milliseconds_since(start: float) -> float:
    return (time.monotonic() - start) * 1000


EXACTLY_ONCE: Final = Case(9, "exactly-once", "Exactly once", _variants)
