"""What is wrong with a slab is named by ``status``, ``probe`` and ``doctor`` while it lasts, and no longer."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest
from faults import stopped_with
from fixture_types import Capture
from processes import wait_until
from producers import sender_pid, stop_sender
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.doctor import Finding, Level, slab_findings
from shmaccum.cli.main import main
from shmaccum.errors import NetworkError
from shmaccum.shm import names
from shmaccum.shm.incidents import Incidents

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capfd: Capture) -> Run:
    """Return ``run(*arguments)``: the exit status of a command, and what it prints."""

    def run(*arguments: str) -> tuple[int, str]:
        status = main([*arguments])
        return status, "".join(capfd.readouterr())

    return run


def diagnosis(slab: str) -> Finding:
    """Return what ``doctor`` says of one slab; other tests have theirs at the same time."""
    (found,) = [each for each in slab_findings() if each.text.startswith((f"{slab}:", f"{slab} "))]
    return found


def test_a_fault_is_named_with_what_to_do(settings: Settings, slab_name: str, run: Run) -> None:
    def check(*said: str, advice: str = "") -> None:
        found = diagnosis(slab_name)
        assert found.level == Level.PROBLEM
        assert all(each in found.text for each in said)
        assert advice in found.advice

    with Producer(settings) as producer:
        producer.send("t", b"value", partition=0).get(30)
        healthy = (0, "healthy\n")
        assert run("probe", slab_name) == run("probe", slab_name, "--sender") == healthy
        assert diagnosis(slab_name) == Finding(Level.OK, "slab", f"{slab_name}: nothing is wrong")
        assert f"  log       {os.environ['XDG_STATE_HOME']}/shmaccum/{slab_name}.log" in run("status", slab_name)[1]

        path = next(path for path in names.leftovers(slab_name) if "sem." in path)
        os.chmod(path, 0o660)
        check(f"{path} has mode -rw-rw----", advice=f"chmod 600 {path}")
        os.chmod(path, 0o600)

        refused = "connection to broker 1 at host:9092: Link refused"
        incidents, began_ms = Incidents(producer._slab), time.time_ns() // 1_000_000 - 180_000
        outage = incidents.note(NetworkError, refused, lasts=True, since_ms=began_ms)
        check(f"NetworkError: {refused} (since ")
        out = run("status", slab_name)[1]
        assert re.search(rf"  outage    since 3 min: NetworkError: {refused} \(last \d+ ms ago\)", out)
        assert "  last  " not in out
        assert run("probe", slab_name, "--sender")[0] == 0, "an outage is no reason to restart a sender"
        incidents.end(outage)
        out = run("status", slab_name)[1]
        assert re.search(rf"  last      error \d+ ms ago: NetworkError: {refused}", out)
        assert "outage" not in out

        pid = sender_pid(producer)
        stop_sender(producer)
        try:
            check(f"its sender, process {pid} is stopped", advice=f"kill -CONT {pid}, unless it is being debugged")
            out = run("status", slab_name)[1]
            assert re.search(rf"  sender    process {pid} is stopped: it has not run for \d", out)
            for options in ((), ("--sender",)):
                status, out = run("probe", slab_name, *options)
                assert (status, f"fault: the sender, process {pid} is stopped" in out) == (1, True)
        finally:
            os.kill(pid, signal.SIGCONT)

        with stopped_with(producer._slab.pool_lock) as pid:
            holds = rf"producer {pid} .*is stopped, and holds the memory's lock"
            check(f"producer {pid}", "is stopped, and holds the memory's lock")
            assert re.search(rf"\n  stopped   {holds}\n", run("status", slab_name)[1])
            status, out = run("probe", slab_name)
            assert status == 1
            assert re.search(f"fault: {holds}", out)
            assert run("probe", slab_name, "--sender") == healthy


def test_batches_without_a_sender(settings: Settings, slab_name: str) -> None:
    """The next producer has them delivered."""
    producer = Producer(settings)
    producer.send("t", b"value").get(30)
    pid = sender_pid(producer)
    stop_sender(producer)
    producer.send("t", b"left behind")
    producer.close(0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: diagnosis(slab_name).level == Level.WARNING)
    found = diagnosis(slab_name)
    assert found.text == f"{slab_name}: 1 batch, and no sender"
    assert f"shmaccum destroy {slab_name} --force drops them" in found.advice
    with Producer(settings) as producer:
        producer.flush()
        wait_until(lambda: diagnosis(slab_name).level == Level.OK)


@pytest.mark.usefixtures("foreign")
def test_a_slab_that_cannot_be_read(slab_name: str, run: Run) -> None:
    for command in ("status", "probe"):
        status, out = run(command, slab_name)
        assert (status, "is not a slab of shmaccum" in out) == (1, True)
    assert f"{slab_name}\n  cannot be read: " in run("status")[1]
    found = diagnosis(slab_name)
    assert (found.level, f"{slab_name} cannot be read: " in found.text) == (Level.WARNING, True)


def test_there_is_no_slab(slab_name: str, run: Run) -> None:
    status, out = run("probe", slab_name)
    assert status == 2
    assert out.startswith(f"there is no slab '{slab_name}'")
