"""What a program that only sends does not import: each takes memory of every process that sends, and time."""

from __future__ import annotations

import json

import pytest
from fixture_types import Settings
from producers import wait_until_gone
from runs import run_python

import shmaccum
from shmaccum import Producer

SEND = """
import json, sys
from shmaccum import Producer
from shmaccum.shm import names
names.slab_names = lambda: []  # to remove what another test has left behind just then would need more
with Producer(json.loads(sys.argv[1])) as producer:
    future = producer.send("t", b"1")
future.get(0)
"""
NOT_OF_RECORDS = (
    "_hashlib",  # OpenSSL
    "cramjam",
    "dataclasses",
    "inspect",
    "kafka",
    "numpy",
    "pyarrow",
    "shmaccum.accumulator.drain",
    "shmaccum.kafka",
    "shmaccum.sender.log",
    "shmaccum.sender.sender",
    "shmaccum.shm.inspection",
    "ssl",
)
SEND_COLUMNS = """
import json, sys
import numpy as np
import pyarrow as pa
from shmaccum import Producer
text = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 4], np.int32)), pa.py_buffer(b"abcd"))
numbers = pa.Int64Array.from_buffers(pa.int64(), 3, [pa.py_buffer(bytes([5])), pa.py_buffer(np.arange(3))])  # one null
with Producer(json.loads(sys.argv[1])) as producer:
    for columns in ({"value": text}, {"key": text, "value": text, "partition": numbers, "timestamp": numbers}):
        producer.send_batch("t", pa.RecordBatch.from_arrays(list(columns.values()), list(columns))).get(20)
"""
NOT_OF_COLUMNS = ("pandas",)  # pyarrow imports it for many conversions if it is there
IMPORT_OTHERS = """
import sys
sys.modules["confluent_kafka"] = None
import shmaccum.compat.confluent, shmaccum.logging
"""
NOT_OF_OTHERS = ("kafka", "pyarrow", "shmaccum.kafka", "shmaccum.sender.kafka")


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [(SEND, NOT_OF_RECORDS), (SEND_COLUMNS, NOT_OF_COLUMNS), (IMPORT_OTHERS, NOT_OF_OTHERS)],
)
def test_who_sends_has_nothing_of_the_senders_or_of_columns(
    slab_name: str, settings: Settings, program: str, unwanted: tuple[str, ...]
) -> None:
    found = f"print(sorted(name for name in sys.modules if name.startswith({unwanted})))"
    with Producer(settings()):  # makes the slab: with `multiprocessing.shared_memory` come OpenSSL's hashes
        result = run_python("-c", program + found, json.dumps(settings(), default=str))
    assert (result.stdout, result.stderr) == ("[]\n", "")
    wait_until_gone(slab_name)


def test_dir_has_what_is_exported() -> None:
    """And with it `help`, and the completion of shells."""
    assert set(shmaccum.__all__) <= set(dir(shmaccum))
