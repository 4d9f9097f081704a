"""Spark on top of the Producer: the data source, and `producer` for Python workers.

Spark finds the format ``shmaccum`` through the package ``pyspark_shmaccum``. ``register(spark)`` also makes it known to
Python threads. All Python workers of a host, of any executor, share one slab and one sender.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shmaccum.errors import ApiVersionError

if TYPE_CHECKING:
    from shmaccum.spark.frames import kafka_columns, to_kafka
    from shmaccum.spark.session import register
    from shmaccum.spark.worker import producer

try:
    if find_spec("pyarrow") is None:  # not imported here: half of the processes that plan a job do not need it
        raise ModuleNotFoundError("No module named 'pyarrow'")
    from shmaccum.spark.datasource import ShmAccumDataSource
except ImportError as error:
    raise ApiVersionError(
        f"shmaccum.spark needs pyspark 4.0 or later and pyarrow ({error}): pip install 'shmaccum[spark]'"
    ) from error

__all__ = ["ShmAccumDataSource", "kafka_columns", "producer", "register", "to_kafka"]

_HOMES = {
    "kafka_columns": "shmaccum.spark.frames",
    "to_kafka": "shmaccum.spark.frames",
    "producer": "shmaccum.spark.worker",
    "register": "shmaccum.spark.session",
}


def __getattr__(name: str) -> Any:
    """Import on first use what the processes that plan a job do not need."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
