"""Spark on top of the Producer: the data source ``shmaccum``, and `producer` for code that runs in Python workers.

``spark.dataSource.register(ShmAccumDataSource)`` makes ``df.write.format("shmaccum")`` and
``df.writeStream.format("shmaccum")`` known to a session. All Python workers of a host, of whatever executor, share
one slab and one sender.
"""

from __future__ import annotations

from shmaccum.errors import ApiVersionError

try:
    from shmaccum.spark.datasource import ShmAccumDataSource
    from shmaccum.spark.worker import producer
except ImportError as error:
    raise ApiVersionError(
        f"shmaccum.spark needs pyspark 4.0 or later and pyarrow ({error}): pip install 'shmaccum[spark]'"
    ) from error

__all__ = ["ShmAccumDataSource", "producer"]
