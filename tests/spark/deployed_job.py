"""A job that `test_deployments` gives to ``spark-submit``, with the directory of the log.

It writes by the data source, in the session that ``spark-submit`` has set up, and in one that has only called
`register`: batches and a stream; and then by `producer`. What it saw, it writes to ``found.json`` in its working
directory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import shmaccum
from shmaccum import ProducerConfig
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look
from shmaccum.spark import register, to_kafka
from shmaccum.spark import session as sessions

ROWS, TASKS = 1000, 2


def seen(pid: int) -> dict[str, str]:
    """Return how a process was started, and where it is."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return {"python": command[0], "directory": str(Path(f"/proc/{pid}/cwd").readlink())}


def main() -> None:
    (log_dir,) = sys.argv[1:]
    settings = {
        "transport": "log",
        "log.dir": log_dir,
        "num.partitions": "2",
        "sender.idle.ms": "200",
        "buffer.memory": str(2 << 20),
    }
    config = ProducerConfig.parse(settings)
    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    options = {f"kafka.{name}": value for name, value in settings.items()}

    def write(session: SparkSession, topic: str) -> None:
        rows = session.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as value")
        rows.write.format("shmaccum").mode("append").options(**options, topic=topic).save()

    write(session, "written")
    other = session.newSession()
    other.conf.unset(sessions.TASKS)
    register(other)
    write(other, "registered")
    to_kafka(other.createDataFrame([("a",)], "value string"), options | {"topic": "streamed"})
    arriving = Path(f"{log_dir}-arriving")
    arriving.mkdir()
    (arriving / "b.txt").write_text("b")
    query = other.readStream.text(str(arriving)).writeStream.format("shmaccum")
    query = query.options(**options, topic="streamed", checkpointLocation=f"{log_dir}-checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    with look(config.slab_name(os.geteuid())) as slab:
        writers = [
            seen(process.pid) for process in slab.processes() if process.alive and Role.PRODUCER in process.roles
        ]
        sender = slab.sender().pid
        senders = seen(sender)["python"]

    def send(numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
        import shmaccum
        from shmaccum.spark import producer

        mine = producer(config)
        for number in numbers:
            mine.send("sent", b"%d" % number)
        mine.flush()
        with look(config.slab_name(os.geteuid())) as slab:
            (me,) = (process for process in slab.processes() if process.pid == os.getpid())
            yield {
                "package": shmaccum.__file__,
                "directory": os.getcwd(),
                "is producer": Role.PRODUCER in me.roles,
                "sender": slab.sender().pid,
                "sender starts": slab.sender().starts,
            }

    tasks = session.sparkContext.range(0, ROWS, 1, TASKS).mapPartitions(send).collect()
    session.stop()
    found = {
        "slab": slab.name,
        "writers": writers,
        "sender": sender,
        "sender's python": senders,
        "tasks": tasks,
        "driver's package": shmaccum.__file__,
    }
    Path("found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
