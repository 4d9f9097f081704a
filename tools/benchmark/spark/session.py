"""A Spark session in a process of its own, which the variants of a case share, and the measurement of its jobs."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, cast

from tools.benchmark import cpu
from tools.benchmark.brokers import APACHE, Broker
from tools.benchmark.cases.sending import basic_figures, cpu_figures
from tools.benchmark.contestants import KAFKA_PYTHON, OURS
from tools.benchmark.environment import Environment
from tools.benchmark.errors import MissingError
from tools.benchmark.remote import Remote
from tools.benchmark.settings import for_confluent, for_kafka_python
from tools.benchmark.spark import jobs, tasks
from tools.benchmark.spark.jars import spark_sink_jars
from tools.benchmark.spark.jobs import PARTITIONS, ROW_SIZE, Job, MicroBatch, Query, Running
from tools.spark_jvm import start_session, stop_session

QUERY_FIGURES: Final = ("wall_s", "cpu_s", "took_s", "add_batch_s", "cpu_us_per_record", "broker_cpu_s", "late")
"""Of a query, in the tables."""
FIGURES: Final = ("wall_s", "cpu_s", "records_per_s", "cpu_us_per_record", "broker_cpu_s")
"""Of a job, in the tables."""
_LATE: Final = 0.1
"""A micro-batch that begins later than this part of the interval after its time is late."""
_PATIENCE_S: Final = 900.0
_WARM_UP_TASKS: Final = 4
_WARM_UP_ROWS: Final = 20_000


class Session:
    """A session that starts with its first job, and ends with `close`, or with the case.

    Attributes:
        versions: of Spark's sink, by the names for reports; known once the session has started.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._driver: Remote | None = None
        self.versions: dict[str, str] = {}

    def run_job(self, job: Job, *, warm_up: bool = True) -> dict[str, float]:
        """Run a job into a new topic and return its figures, those of `FIGURES` among them.

        Right before, a small one of the same kind warms up. Spark ends Python workers after a minute without work, and
        turns of other contestants take longer. Without the small job, some contestants and rounds would include the
        start of workers, and others not.
        """
        environment, driver = self._environment, self._started()
        broker = environment.broker(APACHE)
        job = job._replace(servers=broker.servers)
        if warm_up and not environment.smoke:
            with environment.topic(broker, PARTITIONS) as topic:
                driver.call("run", job._replace(topic=topic, tasks=_WARM_UP_TASKS, rows=_WARM_UP_ROWS))
        with environment.topic(broker, PARTITIONS) as topic:
            job = job._replace(topic=topic)
            wall_s, used = self._measure(job)
            self._check(broker, job, job.rows)
        return basic_figures(job.rows, job.rows * job.row_size, wall_s, used)

    def stream(self, query: Query) -> dict[str, float]:
        """Run a streaming query into a new topic and return its figures, from the first micro-batch to the last."""
        environment, driver = self._environment, self._started()
        broker = environment.broker(APACHE)
        with environment.topic(broker, PARTITIONS) as topic:
            query = query._replace(job=query.job._replace(servers=broker.servers, topic=topic))
            driver.call("start", query, meanwhile=self._usage)
            before = self._usage()
            found = driver.call("measured", meanwhile=self._usage)
            used = self._usage().since(before)
            driver.call("end")
            self._check(broker, query.job, (1 + query.measured) * query.job.rows)
        return query_figures(query, found, used)

    def transfer(self, job: Job) -> float:
        """Return the processor time of a row's way into Python, in nanoseconds."""
        if not self._environment.smoke:
            self._started().call("run", job)
        _, used = self._measure(job)
        return used.contestant_s / job.rows * 1e9

    def facts(self, tasks: int, rows_each: int) -> Mapping[str, Any]:
        """Return the parameters of jobs, for a report: with the versions, once they are known."""
        facts = {"tasks": tasks, "rows_each": rows_each, "row_size": ROW_SIZE, "partitions": PARTITIONS}
        return ChainMap(cast("dict[str, Any]", facts), self.versions)

    def close(self) -> None:
        """Stop it and all its processes; our sender exits on its own."""
        if self._driver is not None:
            self._driver.call("stop")
            self._driver.end()
            self._driver = None
            self._environment.wait_quiet()

    def _measure(self, job: Job) -> tuple[float, cpu.Usage]:
        """Run a job; return its wall time in seconds, and what it used."""
        driver = self._started()
        before, began = self._usage(), time.monotonic()
        # Spark ends idle workers without waiting for them, so they are measured in between.
        driver.call("run", job, meanwhile=self._usage)
        return time.monotonic() - began, self._usage().since(before)

    def _check(self, broker: Broker, job: Job, rows: int) -> None:
        if job.how == jobs.EXACTLY_ONCE:
            self._environment.check_committed(broker, job.topic, rows)
        elif job.how != jobs.NOTHING:
            self._environment.check_delivered(broker, job.topic, rows)

    def _usage(self) -> cpu.Usage:
        assert self._driver is not None
        return self._environment.usage([self._driver.pid])

    def _started(self) -> Remote:
        if self._driver is None:
            try:
                import pyspark  # noqa: F401
            except ImportError as error:
                raise MissingError(f"there is no pyspark ({error}): pip install 'shmaccum[spark]'") from None
            environment = self._environment
            self.versions["sink_version"], jars = spark_sink_jars()
            make = partial(_Driver, environment.directory / "spark", environment.new_name(), jars)
            self._driver = Remote(environment.children, "Spark", make, _PATIENCE_S)
            environment.of_case.callback(self.close)
        return self._driver


class _Driver:
    """Spark's driver, in its process; the jars are those of Spark's sink."""

    def __init__(self, directory: Path, slab: str, jars: Sequence[Path]) -> None:
        self._slab, self._directory = slab, directory
        self._numbers = itertools.count(1)
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        directory.mkdir(exist_ok=True)
        os.chdir(directory)  # Python workers look for modules in their working directory first
        from tools.benchmark.spark.nothing import Nothing

        more = {"spark.driver.memory": "2g", "spark.jars": ",".join(map(str, jars))}
        self._spark = start_session(f"local[{os.cpu_count()}]", directory, more)
        self._spark.sparkContext.setLogLevel("ERROR")
        self._spark.dataSource.register(Nothing)

    def run(self, job: Job) -> None:
        rows = self._spark.range(0, job.rows, 1, job.tasks).selectExpr(jobs.values("id", job.row_size))
        if job.how in (OURS, jobs.EXACTLY_ONCE, jobs.SPARK_SINK, jobs.NOTHING):
            name, options = jobs.data_source(job, self._slab)
            number = str(next(self._numbers))
            once = {"txnAppId": "benchmark", "txnVersion": number} if job.how == jobs.EXACTLY_ONCE else {}
            rows.write.format(name).mode("append").options(**options, **once).save()
        elif job.how == KAFKA_PYTHON:
            settings = {"bootstrap_servers": job.servers} | for_kafka_python(job.settings)
            rows.foreachPartition(partial(tasks.by_kafka_python, settings, job.topic))
        elif job.how == jobs.ARROW:
            rows.mapInArrow(tasks.look_at, rows.schema).write.format("noop").mode("overwrite").save()
        else:
            settings = {"bootstrap.servers": job.servers} | for_confluent(job.settings)
            rows.foreachPartition(partial(tasks.by_confluent, job.how == jobs.KEPT_CONFLUENT, settings, job.topic))

    def start(self, query: Query) -> None:
        checkpoint = self._directory / f"checkpoint-{next(self._numbers)}"
        self._query = Running(self._spark, query, self._slab, checkpoint)

    def measured(self) -> list[MicroBatch]:
        """Return the query's other micro-batches when the last of them is committed; the query still runs."""
        return self._query.measured()

    def end(self) -> None:
        self._query.stop()

    def stop(self) -> None:
        stop_session(self._spark)


def query_figures(query: Query, found: Sequence[MicroBatch], used: cpu.Usage) -> dict[str, float]:
    """Return the figures of a measured query, those of `QUERY_FIGURES` among them.

    ``wall_s`` is that of all its micro-batches, with the pauses between them; processor time, ``took_s`` and
    ``add_batch_s`` are those of one, as a mean. ``late`` counts those that began late, since the one before took longer
    than the interval.
    """
    job, count = query.job, len(found)
    return {
        "records": float(job.rows * count),
        "bytes": float(job.rows * count * job.row_size),
        "wall_s": found[-1].began_s + found[-1].took_s - found[0].began_s,
        **cpu_figures(used, count),
        "took_s": fmean(each.took_s for each in found),
        "took_most_s": max(each.took_s for each in found),
        "add_batch_s": fmean(each.add_batch_s for each in found),
        "cpu_us_per_record": used.contestant_s / (job.rows * count) * 1e6,
        "late": float(sum(each.began_s % query.interval_s > _LATE * query.interval_s for each in found)),
    }
