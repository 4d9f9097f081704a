"""The Spark jobs of examples/: Python workers are killed, and a stream's driver.

Starting a driver takes as long as all of this, so one runs the jobs, and then the stream until it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from brokers import wait_for_markers
from example_programs import EXAMPLES, Example, Program
from producers import wait_until, wait_until_gone

from shmaccum import ProducerConfig
from shmaccum.transactions.administration import ONGOING, Transactions
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import deadline_after
from tools.kafka import KafkaCluster

ROWS = 30_000
SUBMIT = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}

DRIVER = """
import runpy, sys
for line in sys.stdin:
    sys.argv = line.split()
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("done", flush=True)
"""
"""Runs a script for each line that it reads, with the line's other words as its arguments."""


def environment(directory: Path) -> dict[str, str]:
    """Return what pyspark takes from the environment: its Python, two cores, and each task is tried again once."""
    settings = SUBMIT | {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory)}
    configured = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    arguments = f"--master local[2,2] {configured} pyspark-shell"
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": arguments}


def orders(first: int, count: int) -> str:
    return "".join(f"{number}\n" for number in range(first, first + count))


def wait_for(file: Path, driver: Program) -> None:
    """Wait until a query has written a file of its checkpoint: a busy machine can need minutes for that."""
    while not file.exists():
        assert driver.process.poll() is None, driver.errors()
        time.sleep(0.05)


@pytest.mark.timeout(600)
def test_jobs_and_a_stream(example: Example, kafka: KafkaCluster) -> None:
    """A task whose worker is killed runs again, so what the killed worker sent is there twice.

    After the stream's driver is killed in a batch, none of its transactions stays open. The next driver goes on from
    the checkpoint: each row is there once.
    """
    variables = environment(example.directory)
    driver = example.start(sys.executable, "-c", DRIVER, **variables)

    def run(script: str, *arguments: object) -> None:
        print(EXAMPLES / "spark" / script, *arguments, file=driver.process.stdin, flush=True)

    for number, script in enumerate(("batch.py", "foreach_partition.py")):
        rows = example.directory / script
        rows.mkdir()
        for part in range(2):
            (rows / f"{part}.txt").write_text(orders((2 * number + part) * ROWS, ROWS))
        run(script, rows)
        os.kill(example.wait_for_worker(driver), signal.SIGKILL)
        driver.read_until(lambda: driver.lines[-1] == "done")
        wait_until_gone(example.slab)  # and with it this job's workers
    stored, first = example.stored(), 4 * ROWS
    assert stored.keys() == {str(number) for number in range(first)}
    assert set(stored.values()) <= {1, 2}

    incoming, checkpoint = example.directory / "incoming", example.directory / "checkpoint"
    incoming.mkdir()

    def arrive(start: int, count: int) -> None:
        file = example.directory / f"{start}.txt"
        file.write_text(orders(first + start, count))
        file.rename(incoming / file.name)

    run("streaming.py", incoming, checkpoint)
    arrive(0, 100)
    wait_for(checkpoint / "commits" / "0", driver)
    arrive(100, 1000)
    wait_for(checkpoint / "offsets" / "1", driver)
    os.kill(example.wait_for_worker(driver), signal.SIGKILL)
    driver.process.kill()
    driver.wait()
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap_servers})
    with BrokerClient(config) as client:
        transactions = Transactions(client, config)
        wait_until(lambda: not transactions.find("", (ONGOING,), deadline_after(30_000)), "consumers can go on")
    arrive(1100, 100)
    with example.python("spark/streaming.py", incoming, checkpoint, **variables) as next_driver:
        wait_for(checkpoint / "commits" / "2", next_driver)
    wait_for_markers(kafka.bootstrap_servers)
    assert example.stored() == stored + Counter(map(str, range(first, first + 1200)))
