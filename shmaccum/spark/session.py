"""What a session needs to find the data source, also in threads of Python.

Spark looks a data source written in Python up in the active session of the calling thread, and finds none in a thread
that Python code started (``ThreadPoolExecutor``, pyspark's ``InheritableThread``): DATA_SOURCE_NOT_FOUND. A source of
Spark's own, such as ``kafka``, is not looked up there. `register` closes that gap for ``DataFrameWriter.save`` and the
like, by the call that ``SparkSession.createDataFrame`` makes for its own thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from shmaccum.errors import ConfigError
from shmaccum.spark.datasource import ShmAccumDataSource
from shmaccum.spark.interpreters import pythons_apart

_STARTS: Final = {"DataFrameWriter": ("save", "saveAsTable", "insertInto"), "DataStreamWriter": ("start", "toTable")}
"""The methods that look a data source up, by the class that has them."""


def register(spark: SparkSession) -> None:
    """Register the data source with a session, and let every thread of this process find it.

    From then on, pyspark's ``DataFrameWriter`` and ``DataStreamWriter`` make the DataFrame's session the active one of
    a thread that has none, before they write: it is set for that thread, and stays. Spark Connect needs none of that;
    there, only the registration is done. A second call changes nothing.

    The session's tasks in Python run with ``PYSPARK_PYTHON`` then, whatever Spark plans with on the driver
    (``spark.sql.execution.pyspark.python`` is set, if it is not): so an archive need not be unpacked there.

    ``DataStreamWriter`` also refuses this format with ``trigger(continuous=...)``: Spark never runs the tasks of a
    Python sink then. Without this call, the sink cannot see the trigger: it refuses to commit, and the query goes on
    without writing.

    Args:
        spark: the session.
    """
    if is_connect(spark):
        _add(spark)
        return
    with pythons_apart(spark):
        _add(spark)
    import pyspark.sql.readwriter
    import pyspark.sql.streaming.readwriter

    for module in (pyspark.sql.readwriter, pyspark.sql.streaming.readwriter):
        for name in _STARTS.keys() & vars(module).keys():
            writer = getattr(module, name)
            for method in _STARTS[name]:
                start = getattr(writer, method)
                if not hasattr(start, "_shmaccum"):
                    setattr(writer, method, _in_session(start))
    writer = pyspark.sql.streaming.readwriter.DataStreamWriter
    for method, noting in (("trigger", _noting_trigger), ("format", _noting_format)):
        if not hasattr(getattr(writer, method), "_shmaccum"):
            setattr(writer, method, noting(getattr(writer, method)))


def _add(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(ShmAccumDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register what it has found by the package pyspark_shmaccum. Later versions do not.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, unless the thread has one.

    Args:
        spark: the session.
    """
    if not is_connect(spark):
        sessions = SparkSession._get_j_spark_session_class(spark._jvm)
        if not sessions.getActiveSession().isDefined():
            sessions.setActiveSession(spark._jsparkSession)


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _in_session(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def start_in_session(writer: Any, *args: Any, **kwargs: Any) -> Any:
        activate(writer._spark)
        return start(writer, *args, **kwargs)

    start_in_session._shmaccum = True  # type: ignore[attr-defined]
    return start_in_session


def _noting_trigger(trigger: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(trigger)
    def note_trigger(writer: Any, **kwargs: Any) -> Any:
        writer._shmaccum_continuous = kwargs.get("continuous") is not None
        _refuse_continuous(writer)
        return trigger(writer, **kwargs)

    note_trigger._shmaccum = True  # type: ignore[attr-defined]
    return note_trigger


def _noting_format(format: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(format)
    def note_format(writer: Any, source: str) -> Any:
        writer._shmaccum_format = source
        _refuse_continuous(writer)
        return format(writer, source)

    note_format._shmaccum = True  # type: ignore[attr-defined]
    return note_format


def _refuse_continuous(writer: Any) -> None:
    """Raise if a ``DataStreamWriter`` has both this format and a continuous trigger."""
    is_ours = getattr(writer, "_shmaccum_format", "").lower() == ShmAccumDataSource.name()
    if is_ours and getattr(writer, "_shmaccum_continuous", False):
        raise ConfigError(
            "trigger(continuous=...) is not supported: Spark never runs the tasks of a Python sink with it; use "
            "trigger(processingTime='1 second'), or format('kafka')"
        )
