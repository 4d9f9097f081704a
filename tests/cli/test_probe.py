"""``shmaccum probe``: a slab's health as an exit status."""

from __future__ import annotations

import os
import signal

from faults import stopped_with
from fixture_types import Capture
from producers import sender_pid, stop_sender
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.errors import NetworkError
from shmaccum.shm.incidents import Incidents


def probe(capfd: Capture, *arguments: str) -> tuple[int, str]:
    status = main(["probe", *arguments])
    out, error = capfd.readouterr()
    assert error == ""
    return status, out


def test_what_is_wrong_with_a_slab_and_with_its_sender(settings: Settings, slab_name: str, capfd: Capture) -> None:
    whole, sender = (slab_name,), (slab_name, "--sender")
    with Producer(settings) as producer:
        producer.send("t", b"value", partition=0).get(30)
        assert probe(capfd, *whole) == probe(capfd, *sender) == (0, "healthy\n")

        pid = sender_pid(producer)
        stop_sender(producer)
        try:
            for arguments in (whole, sender):
                status, out = probe(capfd, *arguments)
                assert status == 1
                assert f"fault: the sender, process {pid} is stopped" in out
        finally:
            os.kill(pid, signal.SIGCONT)

        incidents = Incidents(producer._slab)
        outage = incidents.note(NetworkError, "connection to broker h:1: refused", lasts=True, node=-1)
        assert probe(capfd, *sender)[0] == 0, "an outage is no reason to restart a sender"
        incidents.end(outage)

        with stopped_with(producer._slab.pool_lock) as pid:
            status, out = probe(capfd, *whole)
            assert status == 1
            assert f"fault: producer {pid}" in out
            assert "is stopped, and holds the memory's lock" in out
            assert probe(capfd, *sender) == (0, "healthy\n")


def test_no_slab(slab_name: str, capfd: Capture) -> None:
    status, out = probe(capfd, slab_name)
    assert status == 2
    assert out.startswith(f"there is no slab '{slab_name}'")


def test_a_slab_that_cannot_be_read(foreign: None, slab_name: str, capfd: Capture) -> None:
    assert main(["probe", slab_name]) == 1
    assert "is not a slab of shmaccum" in capfd.readouterr().err
