"""Columns appended to an accumulator of `accumulators`; apart from that, since not all its children need pyarrow."""

from __future__ import annotations

import pyarrow as pa

from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.cluster import TopicPartition
from shmaccum.record.columns import ColumnBodies
from tools.support.accumulators import Accumulators


def append_columns(
    accumulator: Accumulators, to: TopicPartition, values: list[bytes], max_block_ms: float = 1000
) -> FutureColumnsMetadata:
    future = FutureColumnsMetadata(len(values), accumulator.producer.pending)
    bodies = ColumnBodies(accumulator.format, None, pa.array(values, pa.binary()), None, 0)
    accumulator.append_columns(accumulator.map.queues[to], bodies.rows(0, len(values)), future, max_block_ms)
    return future
