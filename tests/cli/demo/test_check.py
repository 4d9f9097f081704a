"""The demo's check finds whatever can be wrong: a check that could not fail would show nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.demo.flights import compare
from shmaccum.cli.demo.log import LogTarget

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
