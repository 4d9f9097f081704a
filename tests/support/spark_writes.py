"""Writes of a frame by the data source: a batch, and all that a stream has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame


def write(rows: DataFrame, options: Mapping[str, str], **more: str) -> None:
    rows.write.format("shmaccum").mode("append").options(**{**options, **more}).save()


def write_stream(
    rows: DataFrame, options: Mapping[str, str], checkpoint: Path, format: str = "shmaccum", **more: str
) -> None:
    """Append what a stream has that is not in its checkpoint yet."""
    query = rows.writeStream.format(format).options(**{**options, **more, "checkpointLocation": str(checkpoint)})
    query.trigger(availableNow=True).start().awaitTermination()
