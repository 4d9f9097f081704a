"""Where Spark finds the data source ``shmaccum`` without a registration.

When a session is asked for its first data source written in Python, Spark imports every package named ``pyspark_*``
and takes its ``DefaultSource``. An error while it does so would take all Python data sources from all sessions, so
one that is ours is raised where the data source is used.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

DefaultSource: type[DataSource]

try:
    from shmaccum.spark import ShmAccumDataSource as DefaultSource
except Exception as error:
    _reason = error

    class UnusableDataSource(DataSource):
        """The data source ``shmaccum`` where the package cannot be imported: raises the reason."""

        @classmethod
        def name(cls) -> str:
            """Return the format's name."""
            return "shmaccum"

        def __init__(self, options: Any) -> None:
            raise _reason

    DefaultSource = UnusableDataSource

__all__ = ["DefaultSource"]
