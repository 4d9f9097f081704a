"""The sender's log: written without being asked, private, bounded, and never in the way of records."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from producers import Settings, settings_of, wait_until_gone

import shmaccum
from shmaccum import Producer, ProducerConfig
from shmaccum.errors import ConfigError, SenderError
from shmaccum.observe.report import report
from shmaccum.sender.logfile import MAX_BYTES, begin_log, default_directory, log_path


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the user's logs belong."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Return the root logger, and take back what the test does to it."""
    logger = logging.getLogger()
    level, handlers = logger.level, list(logger.handlers)
    yield logger
    for handler in logger.handlers[:]:
        if handler not in handlers:
            logger.removeHandler(handler)
            handler.close()
    logger.setLevel(level)


def config_of(name: str, **changes: object) -> ProducerConfig:
    return ProducerConfig.parse(settings_of(name, "/nowhere", **changes))


def serve_once(settings: dict[str, object], slab_name: str) -> str:
    """Deliver a record; return where the log is, as the slab says."""
    with Producer(settings) as producer:
        producer.send("t", b"value", partition=0).get(20)
        return report(slab_name).log


def test_a_sender_has_a_log_without_being_asked(settings: Settings, slab_name: str, state: Path) -> None:
    log = state / "shmaccum" / f"{slab_name}.log"
    assert serve_once(settings(), slab_name) == str(log)
    assert "INFO shmaccum.sender.sender: producer id" in log.read_text()
    assert f"shmaccum {shmaccum.__version__}," in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700


def test_sender_log_file_none(settings: Settings, slab_name: str, state: Path) -> None:
    assert serve_once(settings(sender_log_file="none"), slab_name) == "none, as sender.log.file says"
    assert not state.exists()


def test_a_user_without_a_home_has_no_log(
    settings: Settings, slab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = serve_once(settings(), slab_name)
    assert said.startswith("none: ")
    assert said.endswith("; set sender.log.file to a file that this user can write")


def test_a_link_is_not_followed(settings: Settings, slab_name: str, state: Path, tmp_path: Path) -> None:
    (state / "shmaccum").mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (state / "shmaccum" / f"{slab_name}.log").symlink_to(precious)
    assert serve_once(settings(), slab_name).startswith("none: ")
    assert precious.read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "error"), [("", ConfigError), ("missing/sender.log", SenderError), ("file/sender.log", SenderError)]
)
def test_a_named_log_that_cannot_be_opened_names_the_setting(
    slab_name: str, tmp_path: Path, name: str, error: type[Exception]
) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / name)
    with pytest.raises(error, match=f"sender.log.file = '{path}' cannot be used: .* name a regular file"):
        begin_log(config_of(slab_name, sender_log_file=path))


def test_a_log_is_bounded(slab_name: str, state: Path, root_logger: logging.Logger) -> None:
    log = Path(begin_log(config_of(slab_name)))
    line = "x" * 10_000
    for _ in range(3 * MAX_BYTES // len(line)):
        root_logger.info(line)
    assert sorted(path.name for path in log.parent.iterdir()) == [log.name, f"{log.name}.1"]
    assert all(0 < path.stat().st_size <= MAX_BYTES for path in log.parent.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in log.parent.iterdir())


def test_logs_of_long_ago_are_removed(slab_name: str, state: Path, root_logger: logging.Logger) -> None:
    directory = state / "shmaccum"
    directory.mkdir(parents=True)
    for name, days in (("old.log", 31), ("old.log.1", 40), ("new.log", 29), ("other.txt", 400)):
        (directory / name).touch()
        os.utime(directory / name, (time.time() - days * 86_400,) * 2)
    begin_log(config_of(slab_name))
    assert {path.name for path in directory.iterdir()} == {"new.log", "other.txt", f"{slab_name}.log"}


def test_the_log_of_a_silent_sender_stays(settings: Settings, slab_name: str, state: Path, log_dir: Path) -> None:
    """A sender without trouble writes nothing for months; senders of other slabs begin meanwhile."""
    log = state / "shmaccum" / f"{slab_name}.log"
    with Producer(settings()) as producer:
        producer.send("t", b"value", partition=0).get(20)
        os.utime(log, (time.time() - 31 * 86_400,) * 2)
        other = settings_of(f"{slab_name}-other", f"{log_dir}-other")
        serve_once(other, f"{slab_name}-other")
        assert log.exists()
    wait_until_gone(f"{slab_name}-other")


def test_a_removed_log_is_made_again(slab_name: str, state: Path, root_logger: logging.Logger) -> None:
    log = Path(begin_log(config_of(slab_name)))
    root_logger.info("before")
    log.unlink()
    root_logger.info("after")
    assert log.read_text().endswith("after\n")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert default_directory() == "/home/alice/.local/state/shmaccum"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert log_path(config_of("orders")) == "/home/alice/.local/state/shmaccum/orders.log"
    assert log_path(config_of("orders", sender_log_file="/x/y.log")) == "/x/y.log"
    assert log_path(config_of("orders", sender_log_file="None")) == ""
