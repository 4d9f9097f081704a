"""The Spark jobs of examples/, each with a driver of its own: Python workers are killed, and a stream's driver."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from example_programs import EXAMPLES, Example
from producers import wait_until, wait_until_gone
from runs import in_threads

ROWS = 30_000
SUBMIT = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}


def environment(directory: Path) -> dict[str, str]:
    """Return what pyspark takes from the environment: its Python, two cores, and each task is tried again once."""
    settings = SUBMIT | {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory)}
    configured = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    arguments = f"--master local[2,2] {configured} pyspark-shell"
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": arguments}


def orders(first: int, count: int) -> str:
    return "".join(f"{number}\n" for number in range(first, first + count))


def test_jobs(example: Example) -> None:
    """A batch job and one with foreachPartition, at once and in one slab, each with a driver of its own.

    A task whose worker is killed runs again, so what the killed worker sent is there twice.
    """
    drivers = []
    for number, script in enumerate(("batch.py", "foreach_partition.py")):
        rows = example.directory / script
        rows.mkdir()
        for part in range(2):
            (rows / f"{part}.txt").write_text(orders((2 * number + part) * ROWS, ROWS))
        scratch = example.directory / f"scratch-{number}"
        drivers.append(example.start(sys.executable, EXAMPLES / "spark" / script, rows, **environment(scratch)))
    in_threads(2, lambda number: os.kill(example.wait_for_worker(drivers[number]), signal.SIGKILL))
    assert [driver.wait() for driver in drivers] == [0, 0]
    wait_until_gone(example.slab)
    stored = example.stored()
    assert stored.keys() == {str(number) for number in range(4 * ROWS)}
    assert set(stored.values()) <= {1, 2}


def test_a_stream(example: Example) -> None:
    """Its driver is killed, and the next one goes on from the checkpoint: each row is there once."""
    incoming = example.directory / "incoming"
    incoming.mkdir()
    script = ("spark/streaming.py", incoming, example.directory / "checkpoint")
    variables = environment(example.directory)

    def arrive(number: int, count: int = 100) -> None:
        file = example.directory / f"{number}.txt"
        file.write_text(orders(number, count))
        file.rename(incoming / file.name)

    with example.python(*script, **variables) as driver:
        arrive(0)
        wait_until(lambda: len(example.stored()) >= 100, "the first rows are stored")
        arrive(1000, 1000)
        os.kill(example.wait_for_worker(driver), signal.SIGKILL)
        driver.process.kill()
        driver.wait()
    arrive(100)
    with example.python(*script, **variables):
        expected = Counter(map(str, [*range(200), *range(1000, 2000)]))
        wait_until(lambda: len(example.stored()) >= len(expected), "all rows are stored")
    assert example.stored() == expected
