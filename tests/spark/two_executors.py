"""A Spark driver with two executors: JVMs of their own, each with Python workers of its own.

Run by `test_two_executors`, in the directory in which the log is to be. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from shmaccum import ProducerConfig
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look
from shmaccum.spark import register

TASKS = 8


def start_session() -> SparkSession:
    scratch = Path("scratch").absolute()
    starts_faster = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", starts_faster)
        .config("spark.driver.memory", "512m")
        .config("spark.executor.extraJavaOptions", starts_faster)
        .config("spark.executor.memory", "512m")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.cores.max", "4")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")  # no task before both executors are there
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


def main() -> None:
    settings = {
        "transport": "log",
        "log.dir": "log",
        "num.partitions": "2",
        "sender.idle.ms": "200",
        "buffer.memory": str(2 << 20),
    }
    config = ProducerConfig.parse(settings)
    session = start_session()

    rows = session.range(0, 20_000, 1, TASKS).selectExpr("cast(id as string) as value")
    options = {f"kafka.{name}": value for name, value in settings.items()}
    rows.write.format("shmaccum").mode("append").options(**options, topic="written").save()

    def send(numbers: Iterator[Any]) -> Iterator[tuple[str, int, int]]:
        from shmaccum.spark import producer

        mine = producer(config)
        for number in numbers:
            mine.send("sent", b"%d" % number)
        mine.flush()
        time.sleep(0.5)  # keeps the worker busy, so that others get a task too
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        executor = int(daemon.rpartition(")")[2].split()[1])
        yield os.getcwd(), executor, os.getpid()

    workers = set(session.sparkContext.range(0, 20_000, 1, TASKS).mapPartitions(send).collect())
    with look(config.slab_name(os.geteuid())) as slab:
        producers = [process.pid for process in slab.processes() if process.alive and Role.PRODUCER in process.roles]
        sender = slab.sender()
    session.stop()
    directories, executors, pids = map(set, zip(*workers, strict=True))
    found = {
        "slab": slab.name,
        "directories": [*directories],
        "executors": [*executors],
        "workers": [*pids],
        "producers": producers,
        "sender": sender.pid,
        "sender starts": sender.starts,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
