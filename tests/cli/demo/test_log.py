"""The demo's check finds whatever can be wrong; what the demo may replace, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.demo.flights import compare
from shmaccum.cli.demo.log import LogTarget
from shmaccum.errors import KafkaStorageError

A, B, C = '{"n": 1}', '{"n": 2}', '{"n": 3}'
EXPECTED = {b"UA1": [A, B, B], b"AA2": [C]}


def as_found(**changed: list[str] | None) -> dict[bytes | None, list[bytes | None]]:
    """Return what was expected, with some keys changed, or without those that are None."""
    by_key = {key.decode(): values for key, values in EXPECTED.items()} | changed
    return {key.encode(): [value.encode() for value in values] for key, values in by_key.items() if values is not None}


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, []),
        ({"AA2": None}, [f"1 records missing, such as: AA2: {C}"]),
        ({"UA1": [A, B]}, [f"1 records missing, such as: UA1: {B}"]),
        ({"UA1": [A, B, B, B]}, [f"1 records not sent, or there more than once, such as: UA1: {B}"]),
        ({"DL3": [A]}, [f"1 records not sent, or there more than once, such as: DL3: {A}"]),
        ({"UA1": [B, A, B]}, ["1 keys with their records in another order, such as: UA1"]),
        (
            {"AA2": [B]},
            [
                f"1 records missing, such as: AA2: {C}",
                f"1 records not sent, or there more than once, such as: AA2: {B}",
            ],
        ),
    ],
)
def test_differences_are_listed(changed: dict[str, list[str] | None], problems: list[str]) -> None:
    assert compare(EXPECTED, as_found(**changed)) == problems


def test_nulls_are_unexpected() -> None:
    found: dict[bytes | None, list[bytes | None]] = {**as_found(), None: [None]}
    assert compare(EXPECTED, found) == ["1 records not sent, or there more than once, such as: null: null"]


def test_a_log_that_is_right_and_one_that_is_damaged(settings: Settings, tmp_path: Path) -> None:
    """There are two batches in each of two partitions."""
    log = tmp_path / "log"
    with Producer(settings) as producer:
        for _ in range(2):
            for partition in range(2):
                for number in range(10):
                    producer.send("t", b"v%d" % number, key=b"k%d" % partition, partition=partition)
            producer.flush()
    target = LogTarget(log, "t", 2, {})
    contents = target.read_back()
    assert contents.problems == []
    assert contents.records == 40
    assert contents.values == {key: [b"v%d" % number for number in range(10)] * 2 for key in (b"k0", b"k1")}
    segment = log / "t-1" / "00000000000000000000.log"
    data = segment.read_bytes()
    for damaged, problem in (
        (data.replace(b"v3", b"V3", 1), "the CRC of the batch at offset 0 is wrong"),
        (data[:-1], f"{len(data) // 2 - 1} bytes at its end are not a whole batch"),
        (data[len(data) // 2 :], "offset 10 instead of 0"),
    ):
        segment.write_bytes(damaged)
        assert target.read_back().problems == [f"{segment}: {problem}"]


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
