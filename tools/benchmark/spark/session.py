"""The Spark session that the variants of a case share, with the measurement of its jobs."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Final

from tools.benchmark import cpu
from tools.benchmark.environment import Environment
from tools.benchmark.errors import MissingError
from tools.benchmark.spark.host import Job, SparkHost
from tools.benchmark.spark.jars import spark_sink_jars

FIGURES: Final = ("wall_s", "cpu_s", "records_per_s", "cpu_us_per_record", "broker_cpu_s")
"""Of a job, in the tables."""


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

    def facts(self, tasks: int, rows_each: int, row_size: int, partitions: int) -> Mapping[str, Any]:
        """Return the parameters of jobs, for a report: with the versions, once they are known."""
        facts: dict[str, Any] = {
            "tasks": tasks,
            "rows_each": rows_each,
            "row_size": row_size,
            "partitions": partitions,
        }
        return ChainMap(facts, self.versions)

    def check_senders(self) -> None:
        """Check that our senders have the form of the package that is measured (`Environment.check_senders`)."""
        self._environment.check_senders(self._environment.ours, [self._started().pid])

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
            self._host = SparkHost(
                environment.children, environment.directory / "spark", environment.new_name(), jars, environment.ours
            )
        return self._host


def figures(job: Job, wall_s: float, used: cpu.Usage) -> dict[str, float]:
    """Return the figures of a measured job, those of `FIGURES` among them."""
    seconds = used.seconds
    return {
        "records": float(job.rows),
        "bytes": float(job.rows * job.row_size),
        "wall_s": wall_s,
        "cpu_s": used.contestant_s,
        "cpu_workers_s": seconds.get(cpu.WORKERS, 0.0),
        "cpu_sender_s": seconds.get(cpu.SENDER, 0.0),
        "cpu_jvm_s": seconds.get(cpu.JVM, 0.0),
        "broker_cpu_s": seconds.get(cpu.BROKER, 0.0),
        "records_per_s": job.rows / wall_s,
        "records_per_core_s": job.rows / used.contestant_s,
        "cpu_us_per_record": used.contestant_s / job.rows * 1e6,
    }
