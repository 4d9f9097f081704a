"""Makes the data source known to a session, also in Python threads.

Spark looks a data source written in Python up in the calling thread's active session. A thread that Python code
started (``ThreadPoolExecutor``, pyspark's ``InheritableThread``) has none: DATA_SOURCE_NOT_FOUND. Spark's own sources,
such as ``kafka``, are not looked up there. `register` closes that gap for ``DataFrameWriter.save`` and the like, with
the call that ``SparkSession.createDataFrame`` makes for its own thread.

It also selects the Python that runs a data source: on the driver, which plans, and on executors. Spark uses one command
for both. It takes that of ``PYSPARK_PYTHON`` for a registered data source. For one that Spark found, it takes that of
``PYSPARK_DRIVER_PYTHON``, if that is set (``PythonUtils.defaultPythonExec``). With ``--archives``, an executor has
``./environment/bin/python`` in its working directory. The driver has not, and cannot plan with it. One setting of a
session is for the tasks alone: `TASKS` (``ArrowPythonRunner.pythonExec``).
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from shmaccum.spark.datasource import ShmAccumDataSource


def register(spark: SparkSession) -> None:
    """Register the data source with a session, and let every thread of this process find it.

    Afterwards pyspark's ``DataFrameWriter`` and ``DataStreamWriter`` activate the DataFrame's session in a thread
    without one before they write; it stays active there. Spark Connect does not need that: there, only the
    registration happens. A second call changes nothing.

    The session's Python tasks then run with ``PYSPARK_PYTHON``, with whatever Python Spark plans on the driver
    (``spark.sql.execution.pyspark.python`` is set, if it is not). So an archive need not be unpacked on the driver.

    ``DataStreamWriter`` also refuses this format with ``trigger(continuous=...)`` (`shmaccum.spark.continuous`).
    """
    if is_connect(spark):
        _add(spark)
        return
    with pythons_apart(spark):
        _add(spark)
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    starts = {DataFrameWriter: ("save", "saveAsTable", "insertInto"), DataStreamWriter: ("start", "toTable")}
    for writer, methods in starts.items():  # those that look a data source up
        for name in methods:
            start = getattr(writer, name)
            if not hasattr(start, "_shmaccum"):
                setattr(writer, name, _in_session(start))


def _add(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(ShmAccumDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register a source that it found through the package pyspark_shmaccum. Later ones do not.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def activate(spark: SparkSession) -> None:
    """Activate a session in this thread, unless the thread has an active one."""
    if not is_connect(spark):
        sessions = SparkSession._get_j_spark_session_class(spark._jvm)
        if not sessions.getActiveSession().isDefined():
            sessions.setActiveSession(spark._jsparkSession)


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session belongs to Spark Connect, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _in_session(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def start_in_session(writer: Any, *args: Any, **kwargs: Any) -> Any:
        activate(writer._spark)
        return start(writer, *args, **kwargs)

    start_in_session._shmaccum = True  # type: ignore[attr-defined]
    return start_in_session


# --- which Python -----------------------------------------------------------------------------------------


TASKS: Final = "spark.sql.execution.pyspark.python"
"""The setting for the Python of tasks; the default is that of the function or data source that they run."""


@contextmanager
def pythons_apart(spark: SparkSession) -> Iterator[None]:
    """Run tasks with ``PYSPARK_PYTHON``, and plan data sources registered inside the block with a Python of the driver.

    The driver uses ``PYSPARK_PYTHON`` too, unless that is a path that does not exist on the driver; then it uses this
    process's own Python. A `TASKS` setting that the user gave stays.
    """
    context = spark.sparkContext
    python = context.pythonExec
    if spark.conf.get(TASKS, None) is None:
        spark.conf.set(TASKS, python)
    if not _is_missing(spark, python):
        yield
        return
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = python


def _is_missing(spark: SparkSession, python: str) -> bool:
    """Return whether a command is a path that the driver's JVM cannot run."""
    if os.sep not in python:
        return False
    jvm: Any = spark._jvm
    directory = jvm.java.lang.System.getProperty("user.dir")  # this process can have changed its own
    return shutil.which(os.path.join(directory, python)) is None
