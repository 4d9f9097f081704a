"""What the demo may replace, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmaccum.cli.demo.log import LogTarget
from shmaccum.errors import KafkaStorageError


def make_empty(directory: Path, topic: str) -> None:
    LogTarget(directory, topic, 1, {}).prepare()


def fill(directory: Path) -> None:
    """Write what a demo writes."""
    (directory / "flights-0").mkdir()
    (directory / "flights-0" / "00000000000000000000.log").write_bytes(b"log")
    (directory / ".lock").write_text("1\n")


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def refuse(directory: Path, said: str) -> None:
    before = everything(directory)
    with pytest.raises(KafkaStorageError, match=f"not an earlier demo's output: it holds {said}"):
        make_empty(directory, "flights")
    assert everything(directory) == before


def test_a_new_one_and_an_earlier_demos(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_empty(tmp_path / "empty", "flights")
    for _ in ("absent", "an earlier demo's"):
        make_empty(tmp_path / "a" / "out", "flights")
        assert everything(tmp_path / "a" / "out") == everything(tmp_path / "empty") == {".shmaccum-demo"}
        fill(tmp_path / "a" / "out")


@pytest.mark.parametrize("foreign", ["notes.txt", "orders-0", "flights-x", "flights-1"])
def test_one_with_something_else(foreign: str, tmp_path: Path) -> None:
    make_empty(tmp_path, "flights")
    fill(tmp_path)
    (tmp_path / foreign).write_text("mine")  # a file: of a partition's name, even
    refuse(tmp_path, f"{foreign}; nothing was removed")


def test_a_log_of_flights_that_no_demo_wrote(tmp_path: Path) -> None:
    fill(tmp_path)
    refuse(tmp_path, "a topic")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    precious = tmp_path / "elsewhere" / "precious"
    precious.write_text("precious")
    make_empty(tmp_path / "out", "flights")
    (tmp_path / "out" / "flights-0").symlink_to(tmp_path / "elsewhere")
    refuse(tmp_path / "out", "flights-0")
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / ".shmaccum-demo").symlink_to(precious)
    with pytest.raises(KafkaStorageError, match=r"cannot write the output to .*\.shmaccum-demo: it is a symbolic link"):
        make_empty(tmp_path / "marked", "flights")
    assert precious.read_text() == "precious"


def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(
        KafkaStorageError, match=r"cannot write the output to .*: Not a directory; choose another --out"
    ):
        make_empty(tmp_path / "out", "flights")
