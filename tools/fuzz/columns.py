"""The target ``columns``: inconsistent Arrow batches for `Producer.send_batch`.

An input selects one of a few batches and overwrites parts of its buffers: offsets, views, null bits, numbers. Arrow
itself does not check these.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shmaccum._core import FutureRecordMetadata, ProduceRequestResult
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaError
from shmaccum.producer.column_path import partition_columns
from shmaccum.producer.partitioner import StickyPartitioner
from shmaccum.record.format import record_format
from tools.fuzz.decoders import BytesTarget

_ROWS: Final = 20
_PARTITIONS: Final = 3
_ROOM: Final = 1000
_NUMBERS: Final = (0, 1, 2, 3, 5, 1000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63)
_BINARY: Final = (
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(3),
)  # fmt: skip
_HEADER_TYPES: Final = tuple(
    each(pa.struct([("key", key), ("value", value)]))
    for each, (key, value) in itertools.product(
        (pa.list_, pa.large_list),
        ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary()), (pa.string_view(), pa.binary_view())),
    )
)
_SHAPES: Final = [
    *((kind, None, start) for kind in _BINARY for start in (0, 5)),
    *((pa.binary(), headers, start) for headers in _HEADER_TYPES for start in (0, 5)),
]
"""For each batch: the type of its values, of its headers, and the first row."""

_RESULT: Final = ProduceRequestResult(TopicPartition("t", 0), 1, lambda: None)
_Buffers = list[npt.NDArray[np.uint8]]


class ColumnsTarget(BytesTarget):
    """Batches, changed behind Arrow's back."""

    suffix: ClassVar[str] = ".json"

    def __init__(self) -> None:
        super().__init__([json.dumps([number, []]).encode() for number in range(len(_SHAPES))])

    def make(self, rng: random.Random) -> bytes:
        """Return a batch's number, with changes: buffer, place, bytes, number."""
        number = rng.randrange(len(_SHAPES))
        _, buffers = _changeable(number)
        changes = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            buffer = rng.randrange(len(buffers))
            width = rng.choice((1, 4, 8))
            at = width * rng.randrange(max(1, len(buffers[buffer]) // width))
            value = rng.choice(_NUMBERS) * rng.choice((1, 1, -1)) if width > 1 else rng.getrandbits(8)
            changes.append([buffer, at, width, value % (1 << 8 * width)])
        return json.dumps([number, changes]).encode()

    def decode(self, data: bytes) -> str:
        """Encode the rows of a batch, in every format."""
        number, changes = json.loads(data)
        batch, buffers = _changeable(number % len(_SHAPES))
        for buffer, at, width, value in changes:
            there = buffers[buffer % len(buffers)]
            there[at : at + width] = np.frombuffer(value.to_bytes(width, "little"), np.uint8)[: len(there[at:])]
        return " ".join(_encoded(batch, magic) for magic in ((2, 1) if batch.num_columns < 4 else (2,)))


def _encoded(batch: pa.RecordBatch, magic: int) -> str:
    sticky = StickyPartitioner(SimpleNamespace(queues=()), 1 << 20, lambda count: [0] * count)
    try:
        sizes = {"max_body_size": 1 << 20, "batch_size": _ROOM, "open_room": _ROOM // 2}
        parts = partition_columns(batch, record_format(magic), _PARTITIONS, sticky, ignore_keys=False, **sizes)
        for rows in parts.values():
            while rows.left:
                timestamp, _ = rows.next_record()
                rows.note(FutureRecordMetadata(_RESULT, 0, timestamp))
    except KafkaError as error:
        return type(error).__name__
    return "taken"


# --- what is right, and can be changed ------------------------------------------------------------------


def _changeable(number: int) -> tuple[pa.RecordBatch, _Buffers]:
    kind, headers, start = _SHAPES[number]
    rng = random.Random(number)
    text = [None if rng.random() < 0.1 else "abc" * rng.choice((1, 1, 1, 9)) for _ in range(_ROWS)]
    if pa.types.is_fixed_size_binary(kind):
        text = [None if each is None else "abc" for each in text]
    values = [None if each is None else each.encode() for each in text]
    columns = {
        "value": pa.array(text if "string" in str(kind) else values, kind),
        "key": pa.array([b"key %d" % row if row % 3 else None for row in range(_ROWS)], pa.binary()),
        "timestamp": pa.array([1_700_000_000_000 + row for row in range(_ROWS)], pa.timestamp("ms")),
    }
    if headers is not None:
        rows = [
            None if rng.random() < 0.1 else [{"key": f"n{row}", "value": values[row]}] * rng.randrange(4)
            for row in range(_ROWS)
        ]
        columns["headers"] = pa.array(rows, headers)
    buffers: _Buffers = []
    copies = {name: _copied(column, iter(column.buffers()), buffers) for name, column in columns.items()}
    return pa.record_batch(copies).slice(start), [each for each in buffers if len(each)]


def _copied(array: pa.Array, there: Iterator[pa.Buffer | None], buffers: _Buffers) -> pa.Array:
    """Return an array over copies of its buffers, which are added to those given."""
    kind: Any = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    children = [array.values] if is_list else [array.field(each) for each in range(kind.num_fields)]
    count = 2 if is_list else 1 if children else len(array.buffers())
    own: list[pa.Buffer | None] = []
    for buffer in itertools.islice(there, count):
        if buffer is not None:
            buffers.append(np.frombuffer(buffer, np.uint8).copy())
        own.append(None if buffer is None else pa.py_buffer(buffers[-1]))
    inner = [_copied(child, there, buffers) for child in children]
    return pa.Array.from_buffers(kind, len(array), own, children=inner or None)
