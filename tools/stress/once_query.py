"""The Spark driver of a run of ``--exactly-once --spark``: a streaming query from files to Kafka.

The rows of a file are one task's. Files do not change, so a batch that Spark plans again has the same rows.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from tools.spark_jvm import VARIABLE, jvm_options
from tools.stress.once_lots import Lots
from tools.stress.once_source import ROWS, ROWS_AT_ONCE, DyingDataSource, Rows, options_of
from tools.stress.visible_once import TOPIC

_EXECUTORS: Final = 2
_CORES: Final = 2
"""Of each executor; of the driver, without executors."""
_TASK_FAILURES: Final = 4
"""Of one task, before the query fails: Spark's default."""
_RESTARTS: Final = 20
"""Most failures of the query in one driver."""
_JAVA: Final = """\
#!/bin/bash
# Spark never speculates on the host of the first attempt, so each executor has an address of its own.
id=0 last=
for each in "$@"; do
    [ "$last" = --executor-id ] && id=$each
    last=$each
done
arguments=()
last=
for each in "$@"; do
    [ "$last" = --hostname ] && each=127.0.1.$((id % 250 + 1))
    arguments+=("$each")
    last=$each
done
exec {java} "${{arguments[@]}}"
"""


def value_of(file: int, row: int) -> bytes:
    """Return a row; all have the same length, so that each file is one task."""
    return b"%06d %03d" % (file, row)


def write_files(directory: Path, files: int) -> None:
    """Write all rows."""
    directory.mkdir()
    for file in range(files):
        (directory / f"{file:06d}.txt").write_bytes(b"".join(value_of(file, row) + b"\n" for row in range(ROWS)))


def drive(master: str, tasks: int, options: dict[str, str], lots: Lots, directory: Path) -> int:
    """Run the query until it has written all files, or this driver dies; return the exit status.

    Args:
        master: ``local`` or ``local-cluster``.
        tasks: of each batch.
        options: of the data source.
        lots: of all processes.
        directory: of the run: its ``files``, its ``checkpoint``, and what Spark writes.
    """
    spark = _session(master, directory)
    for _ in range(_RESTARTS):
        rows = spark.readStream.option("maxFilesPerTrigger", tasks).text(str(directory / "files"))
        if lots.fail_task:
            rows = rows.mapInArrow(Rows(lots), "value string")
        writer = rows.writeStream.format("shmaccum").options(**options, **options_of(lots))
        query = writer.option("topic", TOPIC).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            break
        except Exception as error:
            lots.note(f"query failed: {_shown(error)}")  # if the driver's JVM is gone, the next call raises
            spark.sparkContext._jsc.sc().isStopped()
    else:
        return 1
    spark.stop()
    return 0


def _session(master: str, directory: Path) -> Any:
    """Start Spark."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2])]  # in this order: the package can be compiled
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ[VARIABLE] = jvm_options()
    home, java = directory / "spark", directory / "java" / "bin" / "java"
    if not home.exists():  # the executors' directories are below it
        home.mkdir()
        for path in Path(pyspark.__file__).parent.iterdir():
            (home / path.name).symlink_to(path)
        java.parent.mkdir(parents=True)
        java.write_text(_JAVA.format(java=shutil.which("java")))
        java.chmod(0o755)
        (directory / "events").mkdir()
    if master != "local":  # else the JVM starts faster: its class archive is for Spark's own home
        os.environ["SPARK_HOME"] = str(home)
    masters = {
        "local": f"local[{_CORES},{_TASK_FAILURES}]",
        "local-cluster": f"local-cluster[{_EXECUTORS},{_CORES},1024]",
    }
    builder = SparkSession.builder.master(masters[master]).appName("shmaccum stress")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executorEnv.JAVA_HOME": str(java.parents[1]),
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": str(_TASK_FAILURES),
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.efficiency.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.sql.files.maxPartitionBytes": str(len(value_of(0, 0) + b"\n") * ROWS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
        "spark.sql.pandas.udf.buffer.size": "256",  # so that rows reach the writer one batch after the other
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark: Any = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # failing tasks are expected
    spark.dataSource.register(DyingDataSource)
    return spark


def _shown(error: Exception) -> str:
    """Return what failed, without what differs each time."""
    if type(error).__name__ != "StreamingQueryException":
        return f"{type(error).__name__}: the driver is gone"
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
    text = lines[-1] if lines else str(error).rpartition("terminated with exception: ")[2]
    return re.sub("[0-9]", "#", text[:160])
