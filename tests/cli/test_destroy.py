"""Which slabs are removed, and what is said of the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from fixture_types import Capture, Link, Start
from processes import wait_until
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.errors import SlabError
from shmaccum.observe.report import report
from shmaccum.shm import names


def send_and_stay(link: Link, settings: Settings, records: int) -> None:
    producer = Producer(settings)
    for _ in range(records):
        producer.send("t", b"value", partition=0)
    link.send(None)
    link.recv()


@pytest.fixture
def abandon(settings: Settings, slab_name: str, start: Start) -> Callable[[int], None]:
    """Return ``abandon(records)``: leave a slab whose users were all killed, with this many records in it."""

    def run(records: int) -> None:
        child = start(send_and_stay, settings | {"linger.ms": 600_000, "delivery.timeout.ms": 700_000}, records)
        child.hear()
        sender = report(slab_name).sender.pid
        os.kill(sender, signal.SIGKILL)
        child.kill()
        wait_until(lambda: not is_used(slab_name))

    return run


def is_used(slab_name: str) -> bool:
    try:
        return any(process.alive for process in report(slab_name).processes)
    except SlabError:
        return False  # it was empty, and another program of this user has removed it, or is about it


def destroy(capfd: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["destroy", *arguments])
    return status, *capfd.readouterr()


def test_one_that_all_have_left_in_death_and_then_one_that_is_not_there(
    abandon: Callable[[int], None], slab_name: str, capfd: Capture
) -> None:
    while True:
        abandon(0)
        status, out, err = destroy(capfd, slab_name)
        if "there is no slab" not in err:
            break  # else a producer of another test has come by and removed it
    assert (status, out, err) == (0, f"removed slab '{slab_name}'\n", "")
    assert slab_name not in names.slab_names()
    status, out, err = destroy(capfd, slab_name)
    assert (status, out, f"there is no slab '{slab_name}'; there are" in err) == (1, "", True)


def test_one_with_records_only_by_force(abandon: Callable[[int], None], slab_name: str, capfd: Capture) -> None:
    abandon(3)
    status, out, err = destroy(capfd, slab_name)
    assert (status, out) == (1, "")
    assert f"slab '{slab_name}' holds 3 undelivered records; start a producer" in err
    assert report(slab_name).partitions[0].queued_records == 3
    assert destroy(capfd, slab_name, "--force") == (0, f"removed slab '{slab_name}'; 3 records were lost\n", "")
    assert slab_name not in names.slab_names()


def test_one_in_use_not_even_by_force(settings: Settings, slab_name: str, start: Start, capfd: Capture) -> None:
    child = start(send_and_stay, settings, 1).ready()
    status, out, err = destroy(capfd, slab_name, "--force")
    assert (status, out) == (1, "")
    assert f"slab '{slab_name}' is in use by process " in err
    assert str(child.pid) in err
    with Producer(settings) as producer:
        status, out, err = destroy(capfd, slab_name, "--force")
        assert (status, out) == (1, "")
        assert err == f"shmaccum destroy: slab '{slab_name}' is in use by this process itself\n"
        assert producer.send("t", b"x", partition=1).get(timeout=30).offset == 0
    # Nor if its segment is missing: its users go on.
    aside = f"{names.SHM_DIRECTORY}/{slab_name}-aside"
    os.rename(names.segment_path(slab_name), aside)
    status, out, err = destroy(capfd, slab_name, "--force")
    os.rename(aside, names.segment_path(slab_name))
    assert (status, out) == (1, "")
    assert f"slab '{slab_name}' is in use by process " in err
    child.kill()
