"""The Spark session that the variants of a case share, with the measurement of its jobs."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from tools.benchmark import cpu
from tools.benchmark.environment import Environment
from tools.benchmark.errors import MissingError
from tools.benchmark.spark.host import SparkHost
from tools.benchmark.spark.jars import spark_sink_jars
from tools.benchmark.spark.jobs import Job, MicroBatch, Query

QUERY_FIGURES: Final = ("wall_s", "cpu_s", "took_s", "add_batch_s", "cpu_us_per_record", "broker_cpu_s", "late")
"""Of a query, in the tables."""
FIGURES: Final = ("wall_s", "cpu_s", "records_per_s", "cpu_us_per_record", "broker_cpu_s")
"""Of a job, in the tables."""
_LATE: Final = 0.1
"""A micro-batch that begins later than this part of the interval after its time is late."""


class Session:
    """A session that starts with its first job.

    Args:
        environment: the benchmark's.

    Attributes:
        versions: of Spark's sink, by the names for reports; known once the session has started.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._host: SparkHost | None = None
        self.versions: dict[str, str] = {}

    def run(self, job: Job) -> None:
        """Run a job that is not measured.

        Raises:
            MissingError: Spark or its sink is not available.
            BenchmarkError: the job failed.
        """
        self._started().run(job)

    def measure(self, job: Job) -> tuple[float, cpu.Usage]:
        """Run a job; return its wall time in seconds, and what it used.

        Raises:
            MissingError: Spark or its sink is not available.
            BenchmarkError: the job failed.
        """
        environment, host = self._environment, self._started()
        before, began = environment.usage([host.pid]), time.monotonic()
        # Spark ends idle workers without waiting for them, so they are measured in between.
        host.run(job, meanwhile=lambda: environment.usage([host.pid]))
        return time.monotonic() - began, environment.usage([host.pid]).since(before)

    def measure_query(self, query: Query) -> tuple[list[MicroBatch], cpu.Usage]:
        """Run a query; return the micro-batches that count, and what was used from the first one to the last.

        Raises:
            MissingError: Spark or its sink is not available.
            BenchmarkError: the query failed.
        """
        environment, host = self._environment, self._started()

        def usage() -> cpu.Usage:
            return environment.usage([host.pid])

        host.start(query, meanwhile=usage)
        before = usage()
        found = host.measured(meanwhile=usage)
        used = usage().since(before)
        host.end()
        return found, used

    def facts(self, tasks: int, rows_each: int, row_size: int, partitions: int) -> Mapping[str, Any]:
        """Return the parameters of jobs, for a report: with the versions, once they are known."""
        facts: dict[str, Any] = {
            "tasks": tasks,
            "rows_each": rows_each,
            "row_size": row_size,
            "partitions": partitions,
        }
        return ChainMap(facts, self.versions)

    def close(self) -> None:
        """Stop it, if it has started."""
        if self._host is not None:
            self._host.stop()
            self._environment.wait_quiet()

    def _started(self) -> SparkHost:
        if self._host is None:
            try:
                import pyspark  # noqa: F401
            except ImportError as error:
                raise MissingError(f"there is no pyspark ({error}): pip install 'shmaccum[spark]'") from None
            environment = self._environment
            self.versions["sink_version"], jars = spark_sink_jars()
            directory = environment.directory / "spark"
            self._host = SparkHost(environment.children, directory, environment.new_name(), jars)
        return self._host


def figures(job: Job, wall_s: float, used: cpu.Usage) -> dict[str, float]:
    """Return the figures of a measured job, those of `FIGURES` among them."""
    return {
        "records": float(job.rows),
        "bytes": float(job.rows * job.row_size),
        "wall_s": wall_s,
        **_processor_time(used, 1),
        "records_per_s": job.rows / wall_s,
        "records_per_core_s": job.rows / used.contestant_s,
        "cpu_us_per_record": used.contestant_s / job.rows * 1e6,
    }


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
        **_processor_time(used, count),
        "took_s": fmean(each.took_s for each in found),
        "took_most_s": max(each.took_s for each in found),
        "add_batch_s": fmean(each.add_batch_s for each in found),
        "cpu_us_per_record": used.contestant_s / (job.rows * count) * 1e6,
        "late": float(sum(each.began_s % query.interval_s > _LATE * query.interval_s for each in found)),
    }


def _processor_time(used: cpu.Usage, share: int) -> dict[str, float]:
    """Return seconds of processor time by kind of process, divided by a number."""
    seconds = {kind: each / share for kind, each in used.seconds.items()}
    return {
        "cpu_s": used.contestant_s / share,
        "cpu_workers_s": seconds.get(cpu.WORKERS, 0.0),
        "cpu_sender_s": seconds.get(cpu.SENDER, 0.0),
        "cpu_jvm_s": seconds.get(cpu.JVM, 0.0),
        "broker_cpu_s": seconds.get(cpu.BROKER, 0.0),
    }
