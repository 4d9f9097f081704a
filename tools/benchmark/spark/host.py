"""A Spark session in a process of its own, which runs jobs on request."""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from tools.benchmark.contestants import KAFKA_PYTHON, OURS
from tools.benchmark.errors import BenchmarkError
from tools.benchmark.settings import for_confluent, for_kafka_python
from tools.benchmark.spark import tasks
from tools.benchmark.spark.jobs import (
    ARROW,
    EXACTLY_ONCE,
    KEPT_CONFLUENT,
    NOTHING,
    SPARK_SINK,
    Job,
    MicroBatch,
    Query,
    data_source,
    values,
)
from tools.benchmark.spark.micro_batches import run_query
from tools.support.processes import Children

_PATIENCE_S: Final = 900.0


class SparkHost:
    """The session, as the tool sees it.

    Attributes:
        pid: of the process that is the ancestor of all others except our sender.
    """

    def __init__(self, children: Children, directory: Path, slab: str, jars: Sequence[Path]) -> None:
        """Start it.

        Args:
            children: the tool's.
            directory: for Spark's files.
            slab: name of our slab.
            jars: of Spark's sink.

        Raises:
            BenchmarkError: it does not start.
        """
        self._link, theirs = Pipe()
        self.pid = children.fork("Spark", lambda: _be(self._link, theirs, directory, slab, jars))
        theirs.close()
        self._hear()

    def run(self, job: Job, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run a job to its end.

        Args:
            job: which.
            meanwhile: called every second or so.

        Raises:
            BenchmarkError: it failed.
        """
        self._link.send(job)
        self._hear(meanwhile)

    def start(self, query: Query, meanwhile: Callable[[], object]) -> None:
        """Start a query; return when its first micro-batch is committed.

        Args:
            query: which.
            meanwhile: called every second or so.

        Raises:
            BenchmarkError: it failed.
        """
        self._link.send(query)
        self._hear(meanwhile)

    def measured(self, meanwhile: Callable[[], object]) -> list[MicroBatch]:
        """Return the query's other micro-batches when the last of them is committed; the query still runs.

        Raises:
            BenchmarkError: it failed.
        """
        found: list[MicroBatch] = self._hear(meanwhile)
        return found

    def end(self) -> None:
        """Stop the query.

        Raises:
            BenchmarkError: it failed.
        """
        self._link.send(None)
        self._hear()

    def stop(self) -> None:
        """Stop the session and all its processes; our sender exits on its own."""
        self._link.send(None)
        self._hear()
        self._link.close()

    def _hear(self, meanwhile: Callable[[], object] = lambda: None) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while not self._link.poll(1.0):
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"Spark has not responded for {_PATIENCE_S:.0f} s")
                meanwhile()
            heard = self._link.recv()
        except EOFError:
            raise BenchmarkError("Spark has exited") from None
        if isinstance(heard, str):
            raise BenchmarkError(heard)
        return heard


def _be(tools_end: Connection, link: Connection, directory: Path, slab: str, jars: Sequence[Path]) -> int:
    """Run as Spark's driver."""
    tools_end.close()
    try:
        spark = _session(directory, jars)
        link.send(None)
        while (job := link.recv()) is not None:
            try:
                if isinstance(job, Query):
                    _run_query(spark, job, slab, link, directory / f"checkpoint-{next(_numbers)}")
                else:
                    _run(spark, job, slab)
                link.send(None)
            except Exception as error:
                what = f"query of {job.job.how}" if isinstance(job, Query) else f"job of {job.how}"
                link.send(f"the {what} failed: {type(error).__name__}: {str(error)[:2000]}")
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        link.send(None)
    except Exception:
        link.send(f"Spark failed:\n{traceback.format_exc()}")
        return 1
    return 0


def _session(directory: Path, jars: Sequence[Path]) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    directory.mkdir(exist_ok=True)
    os.chdir(directory)  # Python workers look for modules in their working directory first
    from pyspark.sql import SparkSession

    from shmaccum.spark import register

    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").appName("shmaccum benchmark")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    from tools.benchmark.spark.nothing import Nothing

    spark.dataSource.register(Nothing)
    return spark


def _run(spark: Any, job: Job, slab: str) -> None:
    rows = spark.range(0, job.rows, 1, job.tasks).selectExpr(values("id", job.row_size))
    if job.how in (OURS, EXACTLY_ONCE, SPARK_SINK, NOTHING):
        name, options = data_source(job, slab)
        rows.write.format(name).mode("append").options(**options, **_name_of_run(job)).save()
    elif job.how == KAFKA_PYTHON:
        settings = {"bootstrap_servers": job.servers} | for_kafka_python(job.settings)
        rows.foreachPartition(partial(tasks.by_kafka_python, settings, job.topic))
    elif job.how == ARROW:
        rows.mapInArrow(tasks.look_at, rows.schema).write.format("noop").mode("overwrite").save()
    else:
        send = tasks.by_kept_confluent if job.how == KEPT_CONFLUENT else tasks.by_confluent
        settings = {"bootstrap.servers": job.servers} | for_confluent(job.settings)
        rows.foreachPartition(partial(send, settings, job.topic))


_numbers: Final = itertools.count(1)


def _name_of_run(job: Job) -> dict[str, str]:
    """Return the options of one more run of a job that is known by its name."""
    return {"txnAppId": "benchmark", "txnVersion": str(next(_numbers))} if job.how == EXACTLY_ONCE else {}


def _run_query(spark: Any, query: Query, slab: str, link: Connection, checkpoint: Path) -> None:
    """Run a query as `SparkHost.start`, `SparkHost.measured` and `SparkHost.end` see it."""

    def report(found: list[MicroBatch]) -> None:
        link.send(found)
        link.recv()

    run_query(spark, query, slab, checkpoint, ready=lambda: link.send(None), report=report)
