"""Spark on top of the Producer: the data source ``shmaccum``, and `producer` for code that runs in Python workers.

``spark.dataSource.register(ShmAccumDataSource)`` makes ``df.write.format("shmaccum")`` and
``df.writeStream.format("shmaccum")`` known to a session. All Python workers of a host, of whatever executor, share
one slab and one sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmaccum.errors import ApiVersionError

if TYPE_CHECKING:
    from shmaccum.spark.worker import producer

try:
    from shmaccum.spark.datasource import ShmAccumDataSource
except ImportError as error:
    raise ApiVersionError(
        f"shmaccum.spark needs pyspark 4.0 or later and pyarrow ({error}): pip install 'shmaccum[spark]'"
    ) from error

__all__ = ["ShmAccumDataSource", "producer"]


def __getattr__(name: str) -> Any:
    """Import `producer` when it is first asked for: the processes that plan a job have no use for it."""
    if name != "producer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shmaccum.spark.worker import producer

    return producer
