"""``shmaccum probe``: a slab's health as an exit status."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from faults import stopped_with
from fixture_types import Command
from producers import sender_pid, stop_sender

from shmaccum import Producer
from shmaccum.errors import NetworkError
from shmaccum.shm import names
from shmaccum.shm.incidents import Incidents

Settings = dict[str, object]


def probe(shmaccum: Command, *arguments: str) -> tuple[int, str]:
    with shmaccum("probe", *arguments) as process:
        out, error = process.communicate(timeout=60)
        assert error == ""
        return process.returncode, out


def test_a_slab_in_order(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"value").get(30)
        assert probe(shmaccum, slab_name) == (0, "healthy\n")
        assert probe(shmaccum, slab_name, "--sender") == (0, "healthy\n")


def test_no_slab(slab_name: str, shmaccum: Command) -> None:
    status, out = probe(shmaccum, slab_name)
    assert status == 2
    assert out.startswith(f"there is no slab '{slab_name}'")


def test_a_stopped_sender(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"value").get(30)
        pid = sender_pid(producer)
        stop_sender(producer)
        try:
            for arguments in ((slab_name,), (slab_name, "--sender")):
                status, out = probe(shmaccum, *arguments)
                assert status == 1
                assert f"fault: the sender, process {pid} is stopped" in out
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_producer_stopped_with_a_lock(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"value", partition=0).get(30)
        with stopped_with(producer._slab.pool_lock) as pid:
            status, out = probe(shmaccum, slab_name)
            assert status == 1
            assert f"fault: producer {pid}" in out
            assert "is stopped, and holds the memory's lock" in out
            assert probe(shmaccum, slab_name, "--sender") == (0, "healthy\n")


def test_an_outage_is_no_reason_to_restart_a_sender(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"value").get(30)
        Incidents(producer._slab).note(NetworkError, "connection to broker h:1: refused", lasts=True, node=-1)
        assert probe(shmaccum, slab_name, "--sender")[0] == 0


def test_a_slab_that_cannot_be_read(slab_name: str, shmaccum: Command) -> None:
    path, lock = Path(names.segment_path(slab_name)), Path(names.lock_path(slab_name))
    path.write_bytes(b"x" * 5000)
    path.chmod(0o600)
    lock.touch(mode=0o600)
    try:
        with shmaccum("probe", slab_name) as process:
            _, error = process.communicate(timeout=60)
    finally:
        path.unlink()
        lock.unlink()
    assert process.returncode == 1
    assert "is not a slab of shmaccum" in error
