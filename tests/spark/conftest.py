"""One Spark session for all tests here, and a log to write to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from fixture_types import Written
from processes import wait_until
from pyspark import SparkContext
from pyspark.sql import SparkSession
from spark_writes import session_builder, stored

from shmaccum import ProducerConfig
from shmaccum.shm.names import PREFIX, SHM_DIRECTORY
from shmaccum.spark.worker import close_all
from tools.benchmark.errors import MissingError
from tools.benchmark.spark.jars import spark_sink_jars

SETTINGS = {"num.partitions": "3", "buffer.memory": str(2 << 20), "sender.idle.ms": "200"}
"""Of all producers here, but for what a test is about."""

SLAB = f"spark{os.getpid()}"
"""Slab of the tests with Spark; the names of others that they need begin with it."""


@pytest.fixture
def until_gone() -> Callable[..., None]:
    """Return ``until_gone(*of)``: waits until all of these slabs (by name) and processes (by pid) are gone."""
    return _until_gone


def _until_gone(*of: str | int) -> None:
    def left() -> list[str | int]:
        files = [path.name for path in Path(SHM_DIRECTORY).iterdir()]
        slabs = [name for name in of if isinstance(name, str) and any(PREFIX + name in file for file in files)]
        return [*slabs, *(pid for pid in of if isinstance(pid, int) and not _is_gone(pid))]

    wait_until(lambda: not left(), f"all of {of} are gone")


def _is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture(scope="session")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log that the tests with Spark share, and with it a slab and a sender: each has topics of its own."""
    return tmp_path_factory.mktemp("log")


@pytest.fixture
def written(log_dir: Path) -> Written:
    """Return ``written(topic)``: the records of a topic in `log_dir`."""
    return lambda topic: stored(log_dir, topic)


@pytest.fixture(scope="session")
def options(log_dir: Path) -> dict[str, str]:
    """Return the data source's options for `log_dir`."""
    settings = SETTINGS | {"transport": "log", "log.dir": str(log_dir), "shmaccum.name": SLAB}
    return {f"kafka.{name}": value for name, value in settings.items()}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session with two cores, which finds the data source; in the end, everything of it must go.

    It has Spark's own Kafka sink too, if that is available: a jar added later is unknown to other threads.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    jars: Sequence[Path] = ()
    with suppress(MissingError):
        _, jars = spark_sink_jars()
    settings = {
        "spark_driver_memory": "1g",
        "spark_sql_shuffle_partitions": "2",
        "spark_jars": ",".join(map(str, jars)),
    }
    session = session_builder("local[2,2]", scratch, **settings).getOrCreate()  # two cores, two attempts
    session.sparkContext.setLogLevel("OFF")  # many a job here is to fail
    yield session
    daemons = session.sparkContext.range(2).map(lambda _: os.getppid()).collect()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
    _until_gone(SLAB, *daemons)


@pytest.fixture
def configure(tmp_path: Path) -> Iterator[Callable[..., ProducerConfig]]:
    """Return ``configure(linger_ms=...)``: settings with a log of the test's own, for producers in its process."""
    configs: list[ProducerConfig] = []

    def make(**settings: object) -> ProducerConfig:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        configs.append(ProducerConfig.parse(SETTINGS | {"transport": "log", "log.dir": tmp_path / "log"} | dotted))
        return configs[-1]

    yield make
    close_all()
    _until_gone(*(config.slab_name(os.geteuid()) for config in configs))


@pytest.fixture
def config(configure: Callable[..., ProducerConfig]) -> ProducerConfig:
    """Return the settings of a test that wants nothing special of them."""
    return configure()
