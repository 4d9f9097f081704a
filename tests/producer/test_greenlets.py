"""Producers in programs that gevent or eventlet has patched: many greenlets of one thread use them at once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Link, Settings, Start
from producers import wait_until_gone
from senders import read_topic

from shmaccum._core import LOCK_POOL, LOCK_STRIPES
from shmaccum.shm.lifecycle import attach, detach
from tools.support.locks import held

SCRIPT = Path(__file__).with_name("greenlets.py")
GREENLETS, RECORDS = 50, 20


def run(deed: str, library: str, when: str, settings: dict[str, object]) -> Any:
    """Do something in a program of its own; return what it found."""
    command = [sys.executable, str(SCRIPT), deed, library, when, json.dumps(settings)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def hold_locks_now_and_then(link: Link, name: str) -> None:
    """Keep others from the locks that an append takes, again and again until told to stop."""
    slab = None
    while slab is None:
        with contextlib.suppress(Exception):
            slab = attach(name)
    while not link.poll():
        for number in (LOCK_POOL, LOCK_STRIPES, LOCK_STRIPES + 1, LOCK_STRIPES + 2):
            with held(slab.locks[number]):
                time.sleep(0.002)
        time.sleep(0.015)
    detach(slab)


@pytest.mark.parametrize(("library", "when"), [("gevent", "late"), ("eventlet", "first")])
def test_greenlets_of_a_thread_send_and_wait_at_once(
    library: str, when: str, start: Start, settings: Settings, slab_name: str, log_dir: Path
) -> None:
    """No call is refused as a reentrant one, whichever greenlet waits for a lock or for memory meanwhile.

    At the end a dead sender is replaced by a greenlet, while the others sleep.
    """
    other = start(hold_locks_now_and_then, slab_name)
    small = settings(buffer_memory=32 << 10, batch_size=4096, max_request_size=16 << 10)

    found = run("stress", library, when, small)

    assert found == {"errors": [], "waited_for_memory": True, "starts": 2}
    other.tell()
    other.result()
    wait_until_gone(slab_name)
    values = [record.value for records in read_topic(log_dir, "t").values() for record in records]
    values.remove(b"last")
    for greenlet in range(GREENLETS):
        mine = [value.split(b":") for value in values if value.startswith(b"%d:" % greenlet)]
        assert [int(number) for _, number, _ in mine] == list(range(RECORDS))
    assert len(values) == GREENLETS * RECORDS


@pytest.mark.parametrize(("library", "when"), [("gevent", "first"), ("eventlet", "late")])
def test_other_greenlets_run_while_one_waits(library: str, when: str, settings: Settings, slab_name: str) -> None:
    """For the sender, which is stopped; for memory; for a lock that another process has."""
    small = settings(
        buffer_memory=32 << 10, batch_size=4096, max_request_size=16 << 10, max_block_ms=400, compression_type="none"
    )

    found = run("waits", library, when, small)

    assert {name: error for name, (error, _) in found.items()} == {
        "get": "ResultTimeoutError",
        "poll": "",
        "flush": "KafkaTimeoutError",
        "metadata": "KafkaTimeoutError",
        "memory": "BufferExhaustedError",
        "lock": "LockTimeoutError",
    }
    # Of the 40 that there is time for. A wait that blocks its thread lets the others run once in a slice of 0.25 s.
    assert {name: ticks for name, (_, ticks) in found.items() if ticks < 6} == {}
    wait_until_gone(slab_name)
