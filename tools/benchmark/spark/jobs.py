"""What the Spark session is asked to run, and how its data sources are configured for each contestant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.settings import Settings, by_kafkas_names, for_shmaccum

SPARK_SINK: Final = "Spark's JVM sink"
KEPT_CONFLUENT: Final = f"{CONFLUENT}, a producer kept in each worker"
EXACTLY_ONCE: Final = f"{OURS}, exactly once"
NOTHING: Final = "a Python sink that does nothing"
ARROW: Final = "Arrow into Python"


class Job(NamedTuple):
    """A job.

    Attributes:
        how: a contestant's name, or `ARROW`.
        tasks: as many as the source has partitions.
        rows: of all tasks.
        row_size: bytes of a value.
        servers: ``bootstrap.servers``.
        topic: to write to.
        settings: the same for all.
    """

    how: str
    tasks: int
    rows: int
    row_size: int
    servers: str
    topic: str
    settings: Settings


class Query(NamedTuple):
    """A streaming query whose micro-batches are all alike; those behind the first one are measured."""

    job: Job
    interval_s: float
    measured: int


class MicroBatch(NamedTuple):
    """A micro-batch, by Spark's own report.

    Attributes:
        began_s: when it was triggered, in seconds since the epoch.
        took_s: ``triggerExecution``: from then until its commit is in the checkpoint.
        add_batch_s: ``addBatch``: the part of it in which the sink plans, writes and commits.
    """

    began_s: float
    took_s: float
    add_batch_s: float


def values(column: str, size: int) -> str:
    """Return the SQL expression that makes a value of this many bytes of a number."""
    return f"rpad(CAST({column} AS STRING), {size}, ' abcdefghijklmnopqrstuvwxyz') AS value"


def data_source(job: Job, slab: str) -> tuple[str, Mapping[str, str]]:
    if job.how == NOTHING:
        return "nothing", {}
    is_ours = job.how in (OURS, EXACTLY_ONCE)
    settings = for_shmaccum(job.settings, slab) if is_ours else by_kafkas_names(job.settings)
    options = {f"kafka.{name}": str(value) for name, value in settings.items()}
    options |= {"kafka.bootstrap.servers": job.servers, "topic": job.topic}
    if job.how == EXACTLY_ONCE:
        options["exactlyOnce"] = "true"
    return "shmaccum" if is_ours else "kafka", options
