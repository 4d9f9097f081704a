"""Makes Spark fast to start in tests rather than fast to run: options for its JVM, and bytecode for its Python.

The JVM optimizes little, and loads its classes from an archive (AppCDS), which one trial job creates. With both, a
session and a first job take less than half of the processor time. The JVM ignores an archive that does not match its
version or the jars' location, so a stale archive does no harm.

Each of Spark's Python processes imports pyspark from a zip file of its distribution. Python keeps no bytecode for what
it finds there, so each process compiles the modules: a second each, and there are five for a first job.

``python -m tools.spark_jvm`` creates the archive and the bytecode if they are missing.
"""

from __future__ import annotations

import compileall
import os
import re
import shlex
import shutil
import sys
import tempfile
import zlib
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any, Final
from zipfile import ZipFile

from tools.kafka.jars import HOME

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Every driver reads options for its JVM from this variable, however it is started."""
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def class_archive() -> Path:
    """Return where the archive for this interpreter's pyspark is, once it is made."""
    pyspark = find_spec("pyspark")
    # Resolved, since Spark resolves the jars' location too: an environment that is a link has the same archive.
    place = "" if pyspark is None or pyspark.origin is None else str(Path(pyspark.origin).resolve())
    return HOME / f"spark-{version('pyspark')}-{zlib.crc32(place.encode()):08x}.jsa"


def jvm_options() -> str:
    """Return what belongs into `VARIABLE`; there need be no archive, and no pyspark."""
    options = [*_QUICK]
    if find_spec("pyspark") is not None and (archive := class_archive()).exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    return shlex.join(options)


def add_bytecode() -> None:
    """Put bytecode beside each module in the zip files of this interpreter's pyspark, unless it is there."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    for archive in Path(pyspark.origin).parent.glob("python/lib/*.zip"):
        with ZipFile(archive) as modules:
            if any(name.endswith(".pyc") for name in modules.namelist()):
                continue
            with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
                content = Path(scratch, "content")
                modules.extractall(content)
                # Without a hash of the source: Python would check the time of a file in the zip in the local zone.
                unchecked = PycInvalidationMode.UNCHECKED_HASH
                compileall.compile_dir(
                    content, ddir=archive, rx=re.compile("/tests/"), quiet=2, legacy=True, invalidation_mode=unchecked
                )
                Path(shutil.make_archive(str(Path(scratch, "made")), "zip", content)).rename(archive)


def start_session(master: str, directory: Path, more: Mapping[str, str] | None = None) -> Any:
    """Start Spark on loopback, with its files in a directory, and our data source; ``more`` are further settings."""
    from pyspark.sql import SparkSession

    from shmaccum.spark import register

    builder = SparkSession.builder.master(master).appName("shmaccum tools")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(more or {}),
    }.items():
        builder = builder.config(name, value)
    session: Any = builder.getOrCreate()
    register(session)
    return session


def stop_session(session: Any) -> None:
    """Stop Spark, and wait for its JVM."""
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(120)  # it writes its archive of classes, if it was asked for one


def _run_job(directory: Path) -> None:
    """Write some records by the data source into a log, as most of the tests' jobs do."""
    session = start_session("local[2]", directory)
    rows = session.range(100).selectExpr("CAST(id AS STRING) AS value")
    settings = {"transport": "log", "log.dir": str(directory / "log"), "sender.idle.ms": "100"}
    options = {f"kafka.{name}": value for name, value in settings.items()}
    rows.write.format("shmaccum").mode("append").options(**options, topic="trial").save()
    stop_session(session)  # the archive is written at the end


def main() -> int:
    add_bytecode()
    archive = class_archive()
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="spark-") as scratch:
            made = Path(scratch, archive.name)
            os.environ[VARIABLE] = shlex.join([*_QUICK, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
            os.environ["PYSPARK_PYTHON"] = sys.executable
            _run_job(Path(scratch))
            made.rename(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
