"""The sender in the foreground: who shares it, how it is stopped, and what it says when it cannot serve."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from fixture_types import Capture, Command
from slab_settings import Settings

from shmaccum import Producer, ProducerConfig
from shmaccum.cli.main import main
from shmaccum.errors import SlabError
from shmaccum.observe.report import report

LOG = ["-X", "transport=log", "-X", "log.dir=x"]


def say_serving(process: subprocess.Popen[str]) -> str:
    """Wait for the line that says which slab is served; return it."""
    before = ""
    for line in process.stderr:
        if "serving slab" in line:
            return line
        before += line
    raise AssertionError(before)


def is_served(slab_name: str) -> bool:
    try:
        return report(slab_name).sender.alive
    except SlabError:
        return False


def leave(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 0


def test_a_signal_delivers_all_records_and_ends_it(
    shmaccum: Command, settings: Settings, slab_name: str, tmp_path: Path
) -> None:
    settings |= {"linger.ms": 600_000, "delivery.timeout.ms": 700_000}
    file = tmp_path / "shmaccum.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with shmaccum("sender", "--config", file, "-X", "sender.idle.ms=-1") as process:
        assert f"serving slab {slab_name} as process {process.pid}" in say_serving(process)
        producer = Producer(settings)
        future = producer.send("t", b"lingers for ten minutes")
        leave(process, signal.SIGHUP)
        assert future.get(timeout=30).offset == 0
        producer.close()


def test_producers_of_the_same_settings_share_it(shmaccum: Command, tmp_path: Path) -> None:
    settings = {"transport": "log", "log.dir": str(tmp_path / "log")}
    name = ProducerConfig.parse(settings).slab_name(os.geteuid())
    with shmaccum("sender", "--config", "-") as process:
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        process.stdin = None
        assert f"serving slab {name}" in say_serving(process)
        with Producer(settings) as first, Producer(settings | {"sender.idle.ms": 5, "max.block.ms": 5000}) as second:
            first.send("t", b"1").get(timeout=30)
            second.send("t", b"2").get(timeout=30)
            seen = report(name)
            assert (seen.sender.pid, seen.sender.starts) == (process.pid, 1)
        assert is_served(name), "it stays when the producers have gone"
        leave(process, signal.SIGTERM)
    with pytest.raises(SlabError):
        report(name)


def test_it_waits_for_the_senders_role_and_a_signal_ends_that(
    shmaccum: Command, settings: Settings, options: list[str], slab_name: str
) -> None:
    """It takes over from a sender that a producer started; `Restart=always` has nothing to restart meanwhile."""
    options = [*options, "-X", "sender.idle.ms=-1"]
    with Producer(settings) as producer:
        producer.send("t", b"1").get(timeout=30)
        own = report(slab_name).sender.pid
        with shmaccum("sender", *options) as first:
            waiting = first.stderr.readline()
            assert f"slab {slab_name}: process {own} has the sender's role; waiting for it" in waiting
            say_serving(first)
            producer.send("t", b"2").get(timeout=30)
            with shmaccum("sender", *options) as second:
                assert "another `shmaccum sender` keeps it until it ends" in second.stderr.readline()
                leave(second, signal.SIGTERM)
            assert report(slab_name).sender.pid == first.pid
            leave(first, signal.SIGTERM)


def test_it_leaves_when_idle_for_sender_idle_ms_and_its_messages_go_to_its_file_as_well(
    shmaccum: Command, options: list[str], tmp_path: Path
) -> None:
    with shmaccum("sender", *options, "-X", f"sender.log.file={tmp_path / 'sender.log'}") as process:
        line = say_serving(process)
        assert process.wait(30) == 0
    assert line in (tmp_path / "sender.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "bootstrap.servers is missing"),
        ([*LOG, "-X", "lingr.ms=5"], "lingr.ms: no such setting; did you mean linger.ms?"),
        ([*LOG, "-X", "linger.ms=soon"], "linger.ms = 'soon': expected a whole number"),
        (["--config", "/nowhere/x.properties"], "cannot read settings from /nowhere/x.properties: No such file"),
    ],
)
def test_wrong_settings_are_misuse(arguments: list[str], said: str, capfd: Capture) -> None:
    assert main(["sender", *arguments]) == 2
    assert said in capfd.readouterr().err


def test_standard_input_with_a_byte_order_mark(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('\ufeff{"lingr.ms": 5}'))
    assert main(["sender", "--config", "-"]) == 2
    assert "lingr.ms: no such setting" in capfd.readouterr().err


def test_standard_input_that_is_no_text(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert main(["sender", "--config", "-"]) == 2
    assert "cannot read settings from standard input: it is not UTF-8 text" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("setting", "where", "said"),
    [
        ("log.dir", "file", "log.dir {} cannot be used"),
        (
            "sender.log.file",
            "nowhere/sender.log",
            "sender.log.file = '{}' cannot be used: No such file or directory; name a regular file that user id "
            f"{os.geteuid()} can write\n",
        ),
    ],
)
def test_it_says_why_it_cannot_serve(
    setting: str, where: str, said: str, shmaccum: Command, options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with shmaccum("sender", *options, "-X", f"{setting}={tmp_path / where}") as process:
        err = process.communicate(timeout=30)[1]
    assert process.returncode == 1
    assert err.startswith(f"shmaccum sender: {said.format(tmp_path / where)}")
    assert err.count("\n") == 1
