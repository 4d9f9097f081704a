"""How slabs are shown: to people, to programs, again and again, and in few columns."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.cli.report import report
from shmaccum.shm import names

Settings = dict[str, object]
Command = Callable[..., AbstractContextManager[subprocess.Popen[str]]]

TOPIC = "t" * 249


def show(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["status", *arguments]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_for_people(
    settings: Settings,
    slab_name: str,
    capfd: pytest.CaptureFixture[str],
    until: Callable[[Callable[[], bool]], None],
) -> None:
    with Producer(settings) as producer:
        for _ in range(1234):
            producer.send("orders", b"x" * 10, partition=1)
        producer.flush()
        until(lambda: report(slab_name).memory.used == 0)  # the sender frees it when it has told of the end
        out = show(capfd, slab_name)
    lines = out.splitlines()
    assert lines[0] == slab_name
    assert "  memory    0 B of 1.0 MiB used, at most " in out
    assert "1 start so far" in out
    assert "1,234 records" in out
    assert "0 records failed, 0 of them with nobody left to tell, " in out
    rows = [line.split() for line in lines]
    assert [str(os.getpid()), "producer", "alive", "1,234"] in [row[:4] for row in rows]
    assert ["orders-1", "node", "0", "0", "0", "0", "0", "1,234", "0", "1,233"] in rows
    assert "\x1b" not in out, "no colours where there is no terminal"


def test_compression(settings: Settings, slab_name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """How much smaller it got, and who did it."""
    lingers = {"compression.type": "zstd", "linger.ms": 60_000}  # however slow: full batches are the producer's work
    with Producer(settings | lingers) as producer:
        for number in range(200):
            producer.send("orders", b"%d: " % number + b"x" * 800, partition=1)
        producer.flush()
        out = show(capfd, slab_name)
    (header,) = [line.split() for line in out.splitlines() if line.startswith("  PROCESS")]
    (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == [str(os.getpid())]]
    assert int(row[header.index("COMPRESSED")]) > 0
    assert re.search(r"sent .*, compressed to [0-9]%", out)


@pytest.mark.parametrize("environment", [{"COLUMNS": "40"}, {"PYTHONIOENCODING": "ascii"}])
def test_nothing_is_cut(environment: dict[str, str], settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send(TOPIC, b"x", partition=0).get(timeout=30)
        with shmaccum("status", slab_name, **environment) as process:
            out, err = process.communicate(timeout=30)
    assert err == ""
    (row,) = [line.split() for line in out.splitlines() if line.startswith(f"  {TOPIC}-0")]
    assert row == [f"{TOPIC}-0", "node", "0", "0", "0", "0", "0", "1", "0", "0"]


def test_a_topic_that_nobody_knows_yet(settings: Settings, slab_name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Producer(settings | {"shmaccum.max.partitions": 2}) as producer:
        producer.partitions_for("first")
        with pytest.raises(Exception, match="second"):
            producer.partitions_for("second")
        assert "  topic     second: there is no such topic" in show(capfd, slab_name)


def test_for_programs(settings: Settings, slab_name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Producer(settings):
        (named,) = json.loads(show(capfd, slab_name, "--json"))["slabs"]
        everything = json.loads(show(capfd, "--json"))["slabs"]
    assert named["name"] == slab_name
    assert slab_name in [slab["name"] for slab in everything]


def test_again_and_again(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with shmaccum("status", "--json", "--watch", "0.01") as process:
        assert process.stdout is not None

        def is_seen() -> bool:
            return slab_name in [slab["name"] for slab in json.loads(process.stdout.readline())["slabs"]]

        assert not is_seen()
        with Producer(settings):
            while not is_seen():
                pass
        while is_seen():  # an onlooker does not keep it
            pass
    assert slab_name not in names.slab_names()


def test_those_that_cannot_be_read_are_shown(slab_name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = names.lock_path(slab_name)
    open(path, "x").close()
    os.chmod(path, 0o600)
    try:
        out = show(capfd)
        assert main(["status", slab_name]) == 1
    finally:
        os.unlink(path)
    assert f"{slab_name}\n  cannot be read: slab '{slab_name}' is not whole" in out
