"""A program that just ends: no noise, and what it sent is delivered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from producers import wait_until, wait_until_gone
from senders import read_values

Settings = Callable[..., dict[str, object]]

BEGIN = """
import json, os, sys
from shmaccum import Producer
producer = Producer(json.loads(sys.argv[1]))
for number in range(200):
    future = producer.send("t", b"%d" % number, partition=0)
"""

ENDS = {
    "falls off the end": "",
    "in a thread": "import threading; threading.Thread(target=lambda: producer.send('t', b'200', partition=0)).start()",
    "with batches": """
import pyarrow as pa
producer.send_batch('t', pa.record_batch({'value': ['200'], 'partition': [0]}))
""",
    "forks a child that does the same": "os.fork() or producer.send('t', b'200', partition=0)",
    "deletes the producer": "del producer, future",
}


@pytest.mark.parametrize("end", ENDS)
def test_exit_without_close(settings: Settings, slab_name: str, log_dir: Path, end: str) -> None:
    program = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + ENDS[end], json.dumps(settings())],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (program.returncode, program.stdout, program.stderr) == (0, "", "")
    count = 201 if "200" in ENDS[end] else 200
    expected = [b"%d" % number for number in range(count)]
    wait_until(lambda: read_values(log_dir, "t") == expected, "all records are delivered")
    wait_until_gone(slab_name)


def test_an_exception_ends_the_program(settings: Settings, slab_name: str, log_dir: Path) -> None:
    """Only its own traceback is to be seen."""
    program = subprocess.run(
        [sys.executable, "-c", BEGIN + "raise SystemExit('my own reason')", json.dumps(settings())],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (program.returncode, program.stderr) == (1, "my own reason\n")
    wait_until(lambda: len(read_values(log_dir, "t")) == 200, "all records are delivered")
    wait_until_gone(slab_name)
