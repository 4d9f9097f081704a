"""Which Python Spark runs a data source with: on the driver, where it plans, and on executors.

Spark takes the same command for both: that of ``PYSPARK_PYTHON`` for a data source that is registered, and that of
``PYSPARK_DRIVER_PYTHON``, if it is set, for one that it found itself (``PythonUtils.defaultPythonExec``). With
``--archives``, an executor has ``./environment/bin/python`` in its working directory; the driver has not, and cannot
plan with it. One setting of a session is for the tasks alone: `TASKS` (``ArrowPythonRunner.pythonExec``).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

TASKS: Final = "spark.sql.execution.pyspark.python"
"""The setting for the Python of tasks; by default it is that of the function, or data source, which they run."""


@contextmanager
def pythons_apart(spark: SparkSession) -> Iterator[None]:
    """Have tasks run with ``PYSPARK_PYTHON``, and what is registered meanwhile be planned with a Python of the driver.

    That is the one of ``PYSPARK_PYTHON`` too, unless it is a path that leads nowhere on the driver: then this
    process's own. What `TASKS` is set to already holds.

    Args:
        spark: a session that has a JVM in this process.
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
    directory = jvm.java.lang.System.getProperty("user.dir")  # this process may have left it
    return shutil.which(os.path.join(directory, python)) is None
