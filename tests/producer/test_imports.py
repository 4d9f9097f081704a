from __future__ import annotations

import json

from fixture_types import Settings
from producers import wait_until_gone
from runs import run_python

from shmaccum import Producer

PROGRAM = """
import json, sys
from shmaccum import Producer
from shmaccum.shm import names
names.slab_names = lambda: []  # to remove what another test has left behind just then would need more
with Producer(json.loads(sys.argv[1])) as producer:
    future = producer.send("t", b"1")
future.get(0)
print(sorted(name for name in sys.modules if name.startswith(tuple(sys.argv[2:]))))
"""

NOT_OF_A_PRODUCER = (
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
"""Each takes memory of every process that sends, and time of its start."""


def test_who_sends_record_by_record_has_nothing_of_the_senders_or_of_columns(
    slab_name: str, settings: Settings
) -> None:
    with Producer(settings()):  # makes the slab: with `multiprocessing.shared_memory` come OpenSSL's hashes
        result = run_python("-c", PROGRAM, json.dumps(settings(), default=str), *NOT_OF_A_PRODUCER)
    assert (result.stdout, result.stderr) == ("[]\n", "")
    wait_until_gone(slab_name)
