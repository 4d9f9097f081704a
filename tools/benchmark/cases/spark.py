"""Case 4: PySpark into Apache Kafka: our data source, peers in `foreachPartition`, Spark's own sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.limits import FIGURE
from tools.benchmark.contestants import CONFLUENT, KAFKA_PYTHON, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.settings import Settings
from tools.benchmark.spark.jobs import ARROW, EXACTLY_ONCE, KEPT_CONFLUENT, NOTHING, SPARK_SINK, Job, Query
from tools.benchmark.spark.session import FIGURES, QUERY_FIGURES, Session, figures, query_figures

LARGE_TASKS: Final = 4
LARGE_ROWS: Final = 1_000_000
SHORT_TASKS: Final = 200
SHORT_ROWS: Final = 1_000
ROW_SIZE: Final = 100
PARTITIONS: Final = 4
WARM_UP_ROWS: Final = 20_000
SMALL_BATCHES: Final = 20
SMALL_BATCH_ROWS: Final = 1_000
SMALL_INTERVAL_S: Final = 0.5


class Spark:
    """Jobs in one warm session: a small job of the same kind runs right before each measured one.

    Spark ends Python workers after a minute without work, and turns of other contestants take longer. Without the small
    job, some contestants and rounds would include the start of workers, and others not.
    """

    number = 4
    name = "spark"
    title = "PySpark into Apache Kafka"

    def __init__(self) -> None:
        self._session: Session | None = None

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return a session's first write; large tasks; short ones; a stream's small batches; the transfer alone.

        The first is measured before the others' session starts: after each turn, no process may be left.
        """
        session = self._session = Session(environment)
        contestants = (OURS, CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING)
        large_rows = environment.count(LARGE_ROWS, least=1_000)
        short_tasks = environment.count(SHORT_TASKS, least=8)
        short_rows = 100 if environment.smoke else SHORT_ROWS
        small_batches = 2 if environment.smoke else SMALL_BATCHES
        return [
            Variant(
                name="first",
                title=f"the first write of a session, {LARGE_TASKS} tasks of {SHORT_ROWS:,} rows",
                contestants=(OURS,) if environment.smoke else (OURS, SPARK_SINK, NOTHING),
                turn=lambda contestant: _first(environment, contestant),
                figures=("wall_s", "cpu_s", "broker_cpu_s"),
                broker=APACHE,
                facts=session.facts(LARGE_TASKS, SHORT_ROWS, ROW_SIZE, PARTITIONS),
                rounds_at_most=5,
                warm_up=False,
                turn_s=14.0,
            ),
            Variant(
                name="large",
                title=f"{LARGE_TASKS} tasks of {large_rows:,} rows",
                contestants=contestants,
                turn=lambda contestant: _turn(environment, session, contestant, LARGE_TASKS, LARGE_TASKS * large_rows),
                figures=FIGURES,
                broker=APACHE,
                facts=session.facts(LARGE_TASKS, large_rows, ROW_SIZE, PARTITIONS),
                rounds_at_most=5,
                seldom={CONFLUENT: 3, KAFKA_PYTHON: 1},
                warm_up=False,
                turn_s=16.0,
            ),
            Variant(
                name="short",
                title=f"{short_tasks} tasks of {short_rows:,} rows",
                contestants=(OURS, CONFLUENT, KEPT_CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING),
                turn=lambda contestant: _turn(environment, session, contestant, short_tasks, short_tasks * short_rows),
                figures=FIGURES,
                broker=APACHE,
                facts=session.facts(short_tasks, short_rows, ROW_SIZE, PARTITIONS),
                rounds_at_most=5,
                seldom={CONFLUENT: 2, KAFKA_PYTHON: 1},
                warm_up=False,
                turn_s=10.0,
            ),
            Variant(
                name="small-batches",
                title=f"a stream's {small_batches} micro-batches of {SMALL_BATCH_ROWS:,} rows",
                contestants=(OURS, SPARK_SINK, NOTHING),
                turn=lambda contestant: stream(
                    environment,
                    session,
                    Query(
                        Job(contestant, LARGE_TASKS, SMALL_BATCH_ROWS, ROW_SIZE, "", "", Settings()),
                        SMALL_INTERVAL_S,
                        small_batches,
                    ),
                ),
                figures=tuple(figure for figure in QUERY_FIGURES if figure != "wall_s"),
                broker=APACHE,
                facts=session.facts(LARGE_TASKS, SMALL_BATCH_ROWS // LARGE_TASKS, ROW_SIZE, PARTITIONS),
                rounds_at_most=5,
                turn_s=14.0,
            ),
            Variant(
                name="arrow",
                title="Arrow transfer from Spark into Python, processor time of JVM and workers (ns a row)",
                contestants=(ARROW,),
                turn=lambda _: _transfer(environment, session, LARGE_TASKS * large_rows),
                figures=(FIGURE,),
                facts={"unit": "ns/row", "rows": LARGE_TASKS * large_rows},
                warm_up=False,
                turn_s=4.0,
            ),
        ]

    def close(self) -> None:
        """Stop the session."""
        if self._session is not None:
            self._session.close()


def _turn(environment: Environment, session: Session, contestant: str, tasks: int, rows: int) -> dict[str, float]:
    broker = environment.broker(APACHE)
    if not environment.smoke:
        with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
            session.run(Job(contestant, LARGE_TASKS, WARM_UP_ROWS, ROW_SIZE, broker.servers, topic, Settings()))
    with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
        job = Job(contestant, tasks, rows, ROW_SIZE, broker.servers, topic, Settings())
        wall_s, used = session.measure(job)
        check(environment, job, rows)
    return figures(job, wall_s, used)


def _first(environment: Environment, contestant: str) -> dict[str, float]:
    """Run a job in a session that has run nothing."""
    broker, session, rows = environment.broker(APACHE), Session(environment), LARGE_TASKS * SHORT_ROWS
    with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
        job = Job(contestant, LARGE_TASKS, rows, ROW_SIZE, broker.servers, topic, Settings())
        try:
            wall_s, used = session.measure(job)
        finally:
            session.close()
        check(environment, job, rows)
    return figures(job, wall_s, used)


def stream(environment: Environment, session: Session, query: Query) -> dict[str, float]:
    """Run a streaming query into a new topic and return its figures.

    Raises:
        MissingError: Spark or its sink is not available.
        VoidError: not everything arrived.
        BenchmarkError: it failed.
    """
    broker = environment.broker(APACHE)
    with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
        query = query._replace(job=query.job._replace(servers=broker.servers, topic=topic))
        found, used = session.measure_query(query)
        check(environment, query.job, (1 + query.measured) * query.job.rows)
    return query_figures(query, found, used)


def check(environment: Environment, job: Job, rows: int) -> None:
    """Check that all rows of a turn are there.

    Raises:
        VoidError: they are not.
    """
    broker = environment.broker(APACHE)
    if job.how == EXACTLY_ONCE:
        environment.check_committed(broker, job.topic, rows)
    elif job.how != NOTHING:
        environment.check_delivered(broker, job.topic, rows, [])


def _transfer(environment: Environment, session: Session, rows: int) -> dict[str, float]:
    job = Job(ARROW, LARGE_TASKS, rows, ROW_SIZE, "", "", Settings())
    if not environment.smoke:
        session.run(job)
    _, used = session.measure(job)
    return {FIGURE: used.contestant_s / rows * 1e9}
