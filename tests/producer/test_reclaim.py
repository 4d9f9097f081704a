"""A slab for which /dev/shm has no room: slabs that no program needs make way, and the error names the others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from fixture_types import Settings
from producers import in_the_way, settings_of, wait_until_gone

from shmaccum import Producer
from shmaccum.errors import SlabMemoryError
from shmaccum.shm import names

SIZE = 4 << 20
"""More than a slab of the tests takes, and less than two."""


@pytest.fixture
def room(slab_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have /dev/shm be just large enough for one slab of this test, and hold no others."""

    def own() -> list[str]:
        return [name for name in all_names() if name.startswith(slab_name)]

    def statvfs(path: str) -> SimpleNamespace:
        taken = 0
        for name in own():
            with suppress(FileNotFoundError):
                taken += os.stat(names.segment_path(name)).st_size
        return SimpleNamespace(f_bavail=SIZE - taken, f_frsize=1, f_blocks=SIZE)

    all_names = names.slab_names
    monkeypatch.setattr(names, "slab_names", own)
    monkeypatch.setattr(os, "statvfs", statvfs)


@pytest.fixture
def settings(room: None, slab_name: str, tmp_path: Path) -> Iterator[Settings]:
    """Return a function that gives the settings of a slab of the test, by a number."""
    made: set[str] = set()

    def make(number: int, **changes: object) -> dict[str, object]:
        name = f"{slab_name}-{number}"
        made.add(name)
        return settings_of(name, tmp_path / str(number), buffer_memory=2 << 20, **changes)

    yield make
    for name in made:
        wait_until_gone(name)


def is_there(name: object) -> bool:
    return os.path.exists(names.segment_path(str(name)))


def test_idle_slab_is_removed_for_a_new_one(settings: Settings) -> None:
    """However long its sender would stay."""
    first = settings(1, sender_idle_ms=600_000)
    with Producer(first) as producer:
        producer.send("t", b"value").get(20)
    assert is_there(first["shmaccum.name"])
    with Producer(settings(2)) as producer:
        producer.send("t", b"value").get(20)
        assert not is_there(first["shmaccum.name"])


def test_slab_with_a_producer_stays_and_is_named(settings: Settings) -> None:
    first = settings(1)
    with Producer(first), pytest.raises(SlabMemoryError) as refused:
        Producer(settings(2))
    assert re.search(
        r"has no room for the slab: \d\.\d MiB needed, \d\.\d MiB free; .*\. Slabs in use: "
        rf"{first['shmaccum.name']} \(\d\.\d MiB\) is in use by process {os.getpid()}$",
        str(refused.value),
    )


def test_slab_of_another_user_stays_and_is_named(settings: Settings) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    first = settings(1)
    path = names.segment_path(str(first["shmaccum.name"]))
    with Producer(first):
        os.chown(path, 65534, 65534)
        try:
            with pytest.raises(SlabMemoryError, match=r"-1 \(\d\.\d MiB\) is another user's$"):
                Producer(settings(2))
        finally:
            os.chown(path, 0, 0)


def test_slab_with_records_stays_and_is_named(settings: Settings, tmp_path: Path) -> None:
    first = settings(1)
    with Producer(first) as producer:
        producer.partitions_for("t")
        with in_the_way(tmp_path / "1" / "t-0"):
            producer.send("t", b"value", partition=0)
            producer.close(0)
            with pytest.raises(SlabMemoryError, match=r"-1 \(\d\.\d MiB\) holds 1 undelivered records$"):
                Producer(settings(2))


def test_supervised_sender_keeps_its_slab(settings: Settings) -> None:
    """As `shmaccum sender` does, which an operator starts."""
    first = settings(1, sender_idle_ms=-1)
    with Producer(first) as producer:
        pid = producer._slab.lock_file.holder(1)
    with pytest.raises(SlabMemoryError, match=r"-1 \(\d\.\d MiB\) is kept by its sender, which stays when idle$"):
        Producer(settings(2))
    os.kill(pid, 15)
