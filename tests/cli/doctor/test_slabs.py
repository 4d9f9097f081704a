"""``shmaccum doctor``: what is wrong with the slabs of this host."""

from __future__ import annotations

import os
import signal

from faults import stopped_with
from processes import wait_until
from producers import sender_pid, stop_sender
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.doctor import Finding, Level, slab_findings
from shmaccum.errors import NetworkError
from shmaccum.shm import names
from shmaccum.shm.incidents import Incidents


def findings(slab: str) -> list[Finding]:
    """Return what is found of one slab; other tests have theirs at the same time."""
    return [each for each in slab_findings() if each.text.startswith((f"{slab}:", f"{slab} "))]


def test_what_is_wrong_is_named_with_what_to_do(settings: Settings, slab_name: str) -> None:
    def check(*said: str, advice: str = "") -> None:
        (found,) = findings(slab_name)
        assert found.level == Level.PROBLEM
        assert all(each in found.text for each in said)
        assert advice in found.advice

    with Producer(settings) as producer:
        producer.send("t", b"value").get(30)
        assert findings(slab_name) == [Finding(Level.OK, "slab", f"{slab_name}: nothing is wrong")]

        path = next(path for path in names.leftovers(slab_name) if "sem." in path)
        os.chmod(path, 0o660)
        check(f"{path} has mode -rw-rw----", advice=f"chmod 600 {path}")
        os.chmod(path, 0o600)

        pid = sender_pid(producer)
        stop_sender(producer)
        try:
            check(f"its sender, process {pid} is stopped", advice=f"kill -CONT {pid}, unless it is being debugged")
        finally:
            os.kill(pid, signal.SIGCONT)

        refused = "connection to broker 1 at host:9092: Link refused"
        outage = Incidents(producer._slab).note(NetworkError, refused, lasts=True)
        check(f"NetworkError: {refused} (since ")
        Incidents(producer._slab).end(outage)

        with stopped_with(producer._slab.pool_lock) as pid:
            check(f"producer {pid}", "is stopped, and holds the memory's lock")


def test_batches_without_a_sender(settings: Settings, slab_name: str) -> None:
    """The next producer has them delivered."""
    producer = Producer(settings)
    producer.send("t", b"value").get(30)
    pid = sender_pid(producer)
    stop_sender(producer)
    producer.send("t", b"left behind")
    producer.close(0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: [each.level for each in findings(slab_name)] == [Level.WARNING])
    (found,) = findings(slab_name)
    assert found.text == f"{slab_name}: 1 batch, and no sender"
    assert f"shmaccum destroy {slab_name} drops them" in found.advice
    with Producer(settings) as producer:
        producer.flush()
        wait_until(lambda: findings(slab_name)[0].level == Level.OK)


def test_a_slab_that_cannot_be_read(foreign: None, slab_name: str) -> None:
    (found,) = findings(slab_name)
    assert found.level == Level.WARNING
    assert f"{slab_name} cannot be read: " in found.text
