"""A program that exits without `close`: no error message, and its records are delivered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_types import Settings
from producers import wait_until_gone, wait_until_stored
from runs import run_python
from senders import read_values

from shmaccum import Producer
from shmaccum.shm.names import leftovers

BEGIN = """
import json, os, sys
from shmaccum import Producer
producer, topic = Producer(json.loads(sys.argv[1])), sys.argv[2]
for number in range(200):
    future = producer.send(topic, b"%d" % number, partition=0)
"""

ENDS = {
    "falls off the end": "",
    "in a thread": """
import threading
threading.Thread(target=lambda: producer.send(topic, b'200', partition=0)).start()
""",
    "with batches": """
import pyarrow as pa
producer.send_batch(topic, pa.record_batch({'value': ['200'], 'partition': [0]}))
""",
    "forks a child that does the same": "os.fork() or producer.send(topic, b'200', partition=0)",
    "deletes the producer": "del producer, future",
    "by os._exit": "os._exit(0)",
    "with daemon threads at work": """
import threading
def look():
    while True:
        producer.poll(1)
for _ in range(3):
    threading.Thread(target=look, daemon=True).start()
""",
    "sends at exit": "import atexit; atexit.register(lambda: producer.send(topic, b'200', partition=0))",
    "closes at exit": "import atexit; atexit.register(producer.close)",
    "sends from a finalizer": """
class Last:
    def __del__(self):
        self.producer.send(self.topic, b'200', partition=0)
last = Last()
last.producer, last.topic = producer, topic
""",
    "by sys.exit in a thread": "import threading; threading.Thread(target=sys.exit).start()",
    "by an exception": "raise SystemExit('my own reason')",
    "with a daemon thread that sends": """
import threading
def send():
    while True:
        producer.send(topic, bytes(50), partition=1)
threading.Thread(target=send, daemon=True).start()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_exit_without_close(kept: Settings, kept_log: Path, topic: str, end: str) -> None:
    """Of an uncaught exception, only its own message is to be seen. No program stays a user of the slab, see `kept`."""
    program = run_python("-W", "error", "-c", BEGIN + ENDS[end], json.dumps(kept()), topic)
    expected = (1, "my own reason\n") if "my own reason" in ENDS[end] else (0, "")
    assert (program.returncode, program.stderr, program.stdout) == (*expected, "")
    count = 201 if "200" in ENDS[end] else 200
    wait_until_stored(kept_log, count, topic)
    assert read_values(kept_log, topic) == [b"%d" % number for number in range(count)]


SIGNALLED = """
print("sending", flush=True)
while True:
    producer.send(topic, bytes(50), partition=1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_delivers_accepted_records(
    settings: Settings, slab_name: str, log_dir: Path, number: signal.Signals
) -> None:
    """In the middle of a `send`, most likely."""
    command = [sys.executable, "-c", BEGIN + SIGNALLED, json.dumps(settings()), "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "sending\n"
        program.send_signal(number)
        stderr = program.communicate(timeout=60)[1]
    assert program.returncode == -number
    assert stderr.count("Traceback") == (number is signal.SIGINT)
    wait_until_stored(log_dir, 200)
    wait_until_gone(slab_name)


ACKNOWLEDGED = """
import signal
from shmaccum.shm.lifecycle import look
future.get(20)
with look(producer._slab.name) as view:
    os.kill(view.sender().pid, signal.SIGKILL)
while producer._slab.processes.others_alive():
    pass
"""


@pytest.mark.parametrize("also", ["", "second = Producer(producer.config)", "atexit.register(producer.close)"])
def test_exit_without_close_removes_the_slab_of_a_dead_sender(settings: Settings, slab_name: str, also: str) -> None:
    """All is acknowledged and the sender dead: the producer is the last one out."""
    text = f"{BEGIN}import atexit\n{also}\n{ACKNOWLEDGED}"
    program = run_python("-W", "error", "-c", text, json.dumps(settings(sender_idle_ms=60_000)), "t")
    assert (program.returncode, program.stdout, program.stderr) == (0, "", "")
    assert not any(map(os.path.exists, leftovers(slab_name)))


def test_next_producer_removes_empty_slabs_of_killed_producers(settings: Settings, slab_name: str) -> None:
    text = f"{BEGIN}{ACKNOWLEDGED}os.kill(os.getpid(), signal.SIGKILL)"
    assert run_python("-c", text, json.dumps(settings()), "t").returncode == -signal.SIGKILL
    Producer(settings(shmaccum_name=slab_name + "-other")).close()
    assert not any(map(os.path.exists, leftovers(slab_name)))
    wait_until_gone(slab_name + "-other")
