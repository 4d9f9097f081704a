"""Selects the Python that runs a data source: on the driver, which plans, and on executors.

Spark uses one command for both. It takes that of ``PYSPARK_PYTHON`` for a registered data source. For one that Spark
found, it takes that of ``PYSPARK_DRIVER_PYTHON``, if that is set (``PythonUtils.defaultPythonExec``). With
``--archives``, an executor has ``./environment/bin/python`` in its working directory. The driver has not, and cannot
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
"""The setting for the Python of tasks; the default is that of the function or data source that they run."""


@contextmanager
def pythons_apart(spark: SparkSession) -> Iterator[None]:
    """Run tasks with ``PYSPARK_PYTHON``, and plan data sources registered inside the block with a Python of the driver.

    The driver uses ``PYSPARK_PYTHON`` too, unless that is a path that does not exist on the driver; then it uses this
    process's own Python. A `TASKS` setting that the user gave stays.

    Args:
        spark: a session with a JVM in this process.
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
