"""Case 4: PySpark into Apache Kafka: our data source, peers in `foreachPartition`, Spark's own sink."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.benchmark import cpu
from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Variant
from tools.benchmark.cases.limits import FIGURE
from tools.benchmark.contestants import CONFLUENT, KAFKA_PYTHON, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.errors import MissingError
from tools.benchmark.settings import Settings
from tools.benchmark.spark.host import ARROW, KEPT_CONFLUENT, SPARK_SINK, Job, SparkHost
from tools.benchmark.spark.jars import spark_sink_jars

LARGE_TASKS: Final = 4
LARGE_ROWS: Final = 1_000_000
SHORT_TASKS: Final = 200
SHORT_ROWS: Final = 1_000
ROW_SIZE: Final = 100
PARTITIONS: Final = 4
WARM_UP_ROWS: Final = 20_000

_FIGURES: Final = ("wall_s", "cpu_s", "records_per_s", "cpu_us_per_record", "broker_cpu_s")


class Spark:
    """Jobs in one warm session: a small job of the same kind runs right before each measured one.

    Spark ends Python workers after a minute without work, and turns of other contestants take longer. Without the small
    job, some contestants and rounds would include the start of workers, and others not.
    """

    number = 4
    name = "spark"
    title = "PySpark into Apache Kafka"

    def __init__(self) -> None:
        self._workshop: Environment | None = None
        self._host: SparkHost | None = None
        self._versions: dict[str, str] = {}

    def variants(self, environment: Environment) -> Sequence[Variant]:
        """Return four large tasks; many short ones, where starting producers matters; and the transfer alone."""
        self._workshop = environment
        contestants = (OURS, CONFLUENT, KAFKA_PYTHON, SPARK_SINK)
        large_rows = environment.count(LARGE_ROWS, least=1_000)
        short_tasks = environment.count(SHORT_TASKS, least=8)
        short_rows = 100 if environment.smoke else SHORT_ROWS
        return [
            Variant(
                name="large",
                title=f"{LARGE_TASKS} tasks of {large_rows:,} rows",
                contestants=contestants,
                turn=lambda contestant: self._turn(contestant, LARGE_TASKS, LARGE_TASKS * large_rows),
                figures=_FIGURES,
                broker=APACHE,
                facts=self._facts(LARGE_TASKS, large_rows),
                rounds_at_most=5,
                seldom={CONFLUENT: 3, KAFKA_PYTHON: 1},
                warm_up=False,
                turn_s=16.0,
            ),
            Variant(
                name="short",
                title=f"{short_tasks} tasks of {short_rows:,} rows",
                contestants=(OURS, CONFLUENT, KEPT_CONFLUENT, KAFKA_PYTHON, SPARK_SINK),
                turn=lambda contestant: self._turn(contestant, short_tasks, short_tasks * short_rows),
                figures=_FIGURES,
                broker=APACHE,
                facts=self._facts(short_tasks, short_rows),
                rounds_at_most=5,
                seldom={CONFLUENT: 2, KAFKA_PYTHON: 1},
                warm_up=False,
                turn_s=10.0,
            ),
            Variant(
                name="arrow",
                title="Arrow transfer from Spark into Python, processor time of JVM and workers (ns a row)",
                contestants=(ARROW,),
                turn=lambda _: self._transfer(LARGE_TASKS * large_rows),
                figures=(FIGURE,),
                facts={"unit": "ns/row", "rows": LARGE_TASKS * large_rows},
                warm_up=False,
                turn_s=4.0,
            ),
        ]

    def close(self) -> None:
        """Stop the session."""
        if self._host is not None and self._workshop is not None:
            self._host.stop()
            self._workshop.wait_quiet()

    def _facts(self, tasks: int, rows_each: int) -> Mapping[str, Any]:
        """Return a variant's parameters; the version of Spark's sink is known once the session has started."""
        facts: dict[str, Any] = {"tasks": tasks, "rows_each": rows_each, "row_size": ROW_SIZE, "partitions": PARTITIONS}
        return ChainMap(facts, self._versions)

    def _turn(self, contestant: str, tasks: int, rows: int) -> dict[str, float]:
        environment, host = self._started()
        broker = environment.broker(APACHE)
        if not environment.smoke:
            with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
                host.run(Job(contestant, LARGE_TASKS, WARM_UP_ROWS, ROW_SIZE, broker.servers, topic, Settings()))
        with environment.topic(broker, environment.new_name(), PARTITIONS) as topic:
            wall_s, used = self._run(Job(contestant, tasks, rows, ROW_SIZE, broker.servers, topic, Settings()))
            if contestant == OURS:
                environment.check_senders(environment.ours, [host.pid])
            environment.check_delivered(broker, topic, rows, [])
        seconds = used.seconds
        compiled = {"compiled": float(environment.ours.compiled)} if contestant == OURS else {}
        return compiled | {
            "records": float(rows),
            "bytes": float(rows * ROW_SIZE),
            "wall_s": wall_s,
            "cpu_s": used.contestant_s,
            "cpu_workers_s": seconds.get(cpu.WORKERS, 0.0),
            "cpu_sender_s": seconds.get(cpu.SENDER, 0.0),
            "cpu_jvm_s": seconds.get(cpu.JVM, 0.0),
            "broker_cpu_s": seconds.get(cpu.BROKER, 0.0),
            "records_per_s": rows / wall_s,
            "records_per_core_s": rows / used.contestant_s,
            "cpu_us_per_record": used.contestant_s / rows * 1e6,
        }

    def _transfer(self, rows: int) -> dict[str, float]:
        environment, host = self._started()
        job = Job(ARROW, LARGE_TASKS, rows, ROW_SIZE, "", "", Settings())
        if not environment.smoke:
            host.run(job)
        _, used = self._run(job)
        return {FIGURE: used.contestant_s / rows * 1e9}

    def _run(self, job: Job) -> tuple[float, cpu.Usage]:
        environment, host = self._started()
        before, began = environment.usage([host.pid]), time.monotonic()
        # Spark ends idle workers without waiting for them, so they are measured in between.
        host.run(job, meanwhile=lambda: environment.usage([host.pid]))
        return time.monotonic() - began, environment.usage([host.pid]).since(before)

    def _started(self) -> tuple[Environment, SparkHost]:
        """Return the session; start it if necessary.

        Raises:
            MissingError: Spark or its sink is not available.
        """
        assert self._workshop is not None
        if self._host is None:
            try:
                import pyspark  # noqa: F401
            except ImportError as error:
                raise MissingError(f"there is no pyspark ({error}): pip install 'shmaccum[spark]'") from None
            self._versions["sink_version"], jars = spark_sink_jars()
            directory = self._workshop.directory / "spark"
            self._host = SparkHost(
                self._workshop.children, directory, self._workshop.new_name(), jars, self._workshop.ours
            )
        return self._workshop, self._host
