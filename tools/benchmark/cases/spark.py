"""Case 4: PySpark into Apache Kafka: our data source, peers in `foreachPartition`, Spark's own sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Case, Turn, Variant
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


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return a session's first write; large tasks; short ones; a stream's small batches; the transfer alone.

    The first is measured before the others' session starts: after each turn, no process may be left.
    """
    session = Session(environment)
    large_rows = environment.count(LARGE_ROWS, least=1_000)
    short_tasks = environment.count(SHORT_TASKS, least=8)
    short_rows = 100 if environment.smoke else SHORT_ROWS
    small_batches = 2 if environment.smoke else SMALL_BATCHES

    def variant(name: str, title: str, contestants: Sequence[str], turn: Turn, **options: Any) -> Variant:
        settings: dict[str, Any] = {"broker": APACHE, "rounds_at_most": 5}
        return Variant(name, title, contestants, turn, **settings | options)

    return [
        variant(
            "first",
            f"the first write of a session, {LARGE_TASKS} tasks of {SHORT_ROWS:,} rows",
            (OURS,) if environment.smoke else (OURS, SPARK_SINK, NOTHING),
            lambda contestant: _first(environment, contestant),
            figures=("wall_s", "cpu_s", "broker_cpu_s"),
            facts=session.facts(LARGE_TASKS, SHORT_ROWS, ROW_SIZE, PARTITIONS),
            warm_up=False,
        ),
        variant(
            "large",
            f"{LARGE_TASKS} tasks of {large_rows:,} rows",
            (OURS, CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING),
            lambda contestant: run_job(environment, session, job_of(contestant, LARGE_TASKS, LARGE_TASKS * large_rows)),
            figures=FIGURES,
            facts=session.facts(LARGE_TASKS, large_rows, ROW_SIZE, PARTITIONS),
            seldom={CONFLUENT: 3, KAFKA_PYTHON: 1},
            warm_up=False,
        ),
        variant(
            "short",
            f"{short_tasks} tasks of {short_rows:,} rows",
            (OURS, CONFLUENT, KEPT_CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING),
            lambda contestant: run_job(environment, session, job_of(contestant, short_tasks, short_tasks * short_rows)),
            figures=FIGURES,
            facts=session.facts(short_tasks, short_rows, ROW_SIZE, PARTITIONS),
            seldom={CONFLUENT: 2, KAFKA_PYTHON: 1},
            warm_up=False,
        ),
        variant(
            "small-batches",
            f"a stream's {small_batches} micro-batches of {SMALL_BATCH_ROWS:,} rows",
            (OURS, SPARK_SINK, NOTHING),
            lambda contestant: stream(
                environment,
                session,
                Query(job_of(contestant, LARGE_TASKS, SMALL_BATCH_ROWS), SMALL_INTERVAL_S, small_batches),
            ),
            figures=tuple(figure for figure in QUERY_FIGURES if figure != "wall_s"),
            facts=session.facts(LARGE_TASKS, SMALL_BATCH_ROWS // LARGE_TASKS, ROW_SIZE, PARTITIONS),
        ),
        variant(
            "arrow",
            "Arrow transfer from Spark into Python, processor time of JVM and workers (ns a row)",
            (ARROW,),
            lambda _: _transfer(environment, session, LARGE_TASKS * large_rows),
            figures=(FIGURE,),
            broker="",
            facts={"unit": "ns/row", "rows": LARGE_TASKS * large_rows},
            rounds_at_most=99,
            warm_up=False,
        ),
    ]


def job_of(contestant: str, tasks: int, rows: int) -> Job:
    """Return a job; its broker and topic are those of the turn."""
    return Job(contestant, tasks, rows, ROW_SIZE, "", "", Settings())


def run_job(environment: Environment, session: Session, job: Job) -> dict[str, float]:
    """Run a job into a new topic and return its figures; right before, a small one of the same kind.

    Spark ends Python workers after a minute without work, and turns of other contestants take longer. Without the small
    job, some contestants and rounds would include the start of workers, and others not.
    """
    broker = environment.broker(APACHE)
    job = job._replace(servers=broker.servers)
    if not environment.smoke:
        with environment.topic(broker, PARTITIONS) as topic:
            session.run(job._replace(topic=topic, tasks=LARGE_TASKS, rows=WARM_UP_ROWS))
    with environment.topic(broker, PARTITIONS) as topic:
        job = job._replace(topic=topic)
        wall_s, used = session.measure(job)
        _check(environment, job, job.rows)
    return figures(job, wall_s, used)


def _first(environment: Environment, contestant: str) -> dict[str, float]:
    """Run a job in a session that has run nothing."""
    broker, session = environment.broker(APACHE), Session(environment)
    with environment.topic(broker, PARTITIONS) as topic:
        job = job_of(contestant, LARGE_TASKS, LARGE_TASKS * SHORT_ROWS)._replace(servers=broker.servers, topic=topic)
        try:
            wall_s, used = session.measure(job)
        finally:
            session.close()
        _check(environment, job, job.rows)
    return figures(job, wall_s, used)


def stream(environment: Environment, session: Session, query: Query) -> dict[str, float]:
    """Run a streaming query into a new topic and return its figures; raise as `run_job`."""
    broker = environment.broker(APACHE)
    with environment.topic(broker, PARTITIONS) as topic:
        query = query._replace(job=query.job._replace(servers=broker.servers, topic=topic))
        found, used = session.measure_query(query)
        _check(environment, query.job, (1 + query.measured) * query.job.rows)
    return query_figures(query, found, used)


def _check(environment: Environment, job: Job, rows: int) -> None:
    broker = environment.broker(APACHE)
    if job.how == EXACTLY_ONCE:
        environment.check_committed(broker, job.topic, rows)
    elif job.how != NOTHING:
        environment.check_delivered(broker, job.topic, rows)


def _transfer(environment: Environment, session: Session, rows: int) -> dict[str, float]:
    job = job_of(ARROW, LARGE_TASKS, rows)
    if not environment.smoke:
        session.run(job)
    _, used = session.measure(job)
    return {FIGURE: used.contestant_s / rows * 1e9}


SPARK: Final = Case(4, "spark", "PySpark into Apache Kafka", _variants)
