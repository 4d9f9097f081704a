"""Case 4: PySpark into Apache Kafka: our data source, peers in `foreachPartition`, Spark's own sink."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Case, Turn, Variant
from tools.benchmark.cases.limits import FIGURE
from tools.benchmark.contestants import CONFLUENT, KAFKA_PYTHON, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.spark.jobs import ARROW, KEPT_CONFLUENT, NOTHING, SPARK_SINK, Job, Query
from tools.benchmark.spark.session import FIGURES, QUERY_FIGURES, Session

LARGE_TASKS: Final = 4
LARGE_ROWS: Final = 1_000_000
SHORT_TASKS: Final = 200
SHORT_ROWS: Final = 1_000
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

    def first(contestant: str) -> dict[str, float]:
        with closing(Session(environment)) as fresh:
            return fresh.run_job(Job(contestant, LARGE_TASKS, LARGE_TASKS * SHORT_ROWS), warm_up=False)

    def small(contestant: str) -> dict[str, float]:
        return session.stream(Query(Job(contestant, LARGE_TASKS, SMALL_BATCH_ROWS), SMALL_INTERVAL_S, small_batches))

    def variant(
        name: str, title: str, contestants: Sequence[str], turn: Turn, tasks: int, rows_each: int, **options: Any
    ) -> Variant:
        facts = session.facts(tasks, rows_each)
        return Variant(name, title, contestants, turn, broker=APACHE, facts=facts, rounds_at_most=5, **options)

    def jobs(name: str, tasks: int, rows_each: int, contestants: Sequence[str], confluent_rounds: int) -> Variant:
        return variant(
            name,
            f"{tasks} tasks of {rows_each:,} rows",
            contestants,
            lambda contestant: session.run_job(Job(contestant, tasks, tasks * rows_each)),
            tasks,
            rows_each,
            figures=FIGURES,
            seldom={CONFLUENT: confluent_rounds, KAFKA_PYTHON: 1},
            warm_up=False,
        )

    transferred = Job(ARROW, LARGE_TASKS, LARGE_TASKS * large_rows)
    return [
        variant(
            "first",
            f"the first write of a session, {LARGE_TASKS} tasks of {SHORT_ROWS:,} rows",
            (OURS,) if environment.smoke else (OURS, SPARK_SINK, NOTHING),
            first,
            LARGE_TASKS,
            SHORT_ROWS,
            figures=("wall_s", "cpu_s", "broker_cpu_s"),
            warm_up=False,
        ),
        jobs("large", LARGE_TASKS, large_rows, (OURS, CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING), 3),
        jobs("short", short_tasks, short_rows, (OURS, CONFLUENT, KEPT_CONFLUENT, KAFKA_PYTHON, SPARK_SINK, NOTHING), 2),
        variant(
            "small-batches",
            f"a stream's {small_batches} micro-batches of {SMALL_BATCH_ROWS:,} rows",
            (OURS, SPARK_SINK, NOTHING),
            small,
            LARGE_TASKS,
            SMALL_BATCH_ROWS // LARGE_TASKS,
            figures=[figure for figure in QUERY_FIGURES if figure != "wall_s"],
        ),
        Variant(
            "arrow",
            "Arrow transfer from Spark into Python, processor time of JVM and workers (ns a row)",
            (ARROW,),
            lambda _: {FIGURE: session.transfer(transferred)},
            (FIGURE,),
            facts={"unit": "ns/row", "rows": transferred.rows},
            warm_up=False,
        ),
    ]


SPARK: Final = Case(4, "spark", "PySpark into Apache Kafka", _variants)
