"""The checker finds nothing where nothing is wrong, and whatever is wrong by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from producers import settings_of, wait_until_gone

from shmaccum import Producer
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import DeliveryTimeoutError, RecordTooLargeError
from tools.stress.accounting import (
    _CLOSED,
    _OUTCOMES,
    NOT_HEARD,
    Account,
    Verdict,
    all_accounts,
    judge,
    make_value,
    partition_of,
    read_value,
    route_of,
    topic_of,
)
from tools.stress.options import TOPICS, parse
from tools.stress.producers import Load, Writer
from tools.support.reading import Stored, read_log

PARTITIONS = 3


class Scene(NamedTuple):
    """What producers have appended, with their accounts and the log: without kills, so that all of it is right."""

    log_dir: Path
    accounts: list[Account]
    records: list[Stored]


@pytest.fixture
def scene(tmp_path: Path, slab_name: str) -> Iterator[Scene]:
    """Some hundred records of three writers, by `send` and `send_batch`, all acknowledged."""
    settings = settings_of(slab_name, tmp_path / "log", num_partitions=PARTITIONS, batch_size=4096)
    options = parse(["--partitions", str(PARTITIONS), "--record-size", "100", "--columns", "0.1", "--seed", "1"])
    with Producer(settings) as producer:
        writers = [Writer(Load(settings, tmp_path, options), producer, writer) for writer in (1, 2, 3)]
        for _ in range(40):
            for writer in writers:
                writer.append_once()
        producer.flush(30)
        for writer in writers:
            writer.store_results()
            writer.account.note_closed()
            writer.account.close()
    wait_until_gone(slab_name)
    problems: list[str] = []
    records = list(read_log(tmp_path / "log", problems, TOPICS))
    assert not problems
    accounts = all_accounts(tmp_path)
    yield Scene(tmp_path / "log", accounts, records)
    for account in accounts:
        account.close()


def wrong(verdict: Verdict) -> set[str]:
    return {kind for kind, count in verdict.counts.items() if count}


def test_nothing_is_wrong(scene: Any) -> None:
    verdict = judge(scene.accounts, scene.records, PARTITIONS)
    assert wrong(verdict) == set()
    assert verdict.records == verdict.appended == verdict.acknowledged == len(scene.records) > 300
    assert verdict.in_doubt == 0


def changed(index: int, **change: Callable[[Stored], Any]) -> Callable[[list[Stored]], None]:
    """Return a function that changes a field of one record."""

    def apply(records: list[Stored]) -> None:
        records[index] = records[index]._replace(**{name: value(records[index]) for name, value in change.items()})

    return apply


def appended(writer: int, number: int) -> Callable[[list[Stored]], None]:
    """Return a function that appends a record of a writer."""
    return lambda records: records.append(records[-1]._replace(key=None, value=make_value(writer, number, None, 50)))


def swap(records: list[Stored]) -> None:
    """Exchange two records of one writer and partition."""
    whose = [(read_value(record.key, record.value)[0], record.partition) for record in records]
    first, second = [index for index in range(30, len(records)) if whose[index] == whose[30]][:2]
    one, other = records[first], records[second]
    records[first] = one._replace(key=other.key, value=other.value)
    records[second] = other._replace(key=one.key, value=one.value)


def move(records: list[Stored]) -> None:
    """Put a record at the end of another partition."""
    record = records.pop(0)
    records.append(record._replace(partition=records[-1].partition, offset=records[-1].offset + 1))


TORN = {"torn", "missing", "lost"}
WRONG: dict[str, tuple[Callable[[list[Stored]], object], set[str]]] = {
    "removed": (lambda records: records.pop(100), {"missing", "lost"}),
    "removed, and no later offset shows it": (lambda records: records.pop(), {"missing", "lost"}),
    "twice": (lambda records: records.insert(200, records[10]), {"duplicated"}),
    "a bit": (changed(50, value=lambda r: r.value[:-9] + bytes([r.value[-9] ^ 1]) + r.value[-8:]), TORN),
    "cut off": (changed(50, value=lambda record: record.value[:-1]), TORN),
    "the key, which is in the value's checksum": (changed(50, key=lambda record: b"another"), TORN),
    "exchanged": (swap, {"out of order", "misplaced"}),
    "of no writer": (appended(99, 0), {"unexpected"}),
    "not begun by its writer": (appended(1, 1_000_000), {"unexpected"}),
    "in another partition": (move, {"misplaced", "out of order"}),
    "in another topic": (changed(0, topic=lambda record: "another"), {"misplaced"}),
    "not where its producer was told": (changed(0, offset=lambda record: record.offset + 1), {"misplaced"}),
}


@pytest.mark.parametrize(("change", "kinds"), WRONG.values(), ids=WRONG)
def test_a_wrong_log(scene: Any, change: Callable[[list[Stored]], None], kinds: set[str]) -> None:
    change(scene.records)
    assert wrong(judge(scene.accounts, scene.records, PARTITIONS)) == kinds


# --- what a producer was told -----------------------------------------------------------------------------


def test_given_up(scene: Any) -> None:
    scene.accounts[0].hear(0, DeliveryTimeoutError("too late"), None)
    scene.accounts[0].fail_all(1, 2, RecordTooLargeError("too large"))
    verdict = judge(scene.accounts, scene.records, PARTITIONS)
    assert wrong(verdict) == {"failed"}
    assert verdict.errors == {"DeliveryTimeoutError": 1, "RecordTooLargeError": 2}
    assert verdict.failed_found == 3


def test_unheard(scene: Any) -> None:
    account = scene.accounts[0]
    account._words[_OUTCOMES] = NOT_HEARD
    assert wrong(judge(scene.accounts, scene.records, PARTITIONS)) == {"unheard"}
    account._words[_CLOSED] = 0  # it was killed: it need not have heard
    assert wrong(judge(scene.accounts, scene.records, PARTITIONS)) == set()


# --- a call in doubt --------------------------------------------------------------------------------------


@pytest.fixture
def cut_short(tmp_path: Path) -> Account:
    """A writer that appended two records and was killed over a call with twenty more."""
    account = Account(tmp_path, 1, create=True)
    account.begin(2)
    account.end()
    account.begin(20)
    return account


def stored(numbers: list[int]) -> list[Stored]:
    """Put records of writer 1 where they are to go; those that may go anywhere into partition 0."""
    records = []
    offsets = [0] * PARTITIONS
    for number in numbers:
        route = route_of(1, number, PARTITIONS)
        partition = 0 if route == (None, None) else partition_of(route, PARTITIONS)
        value = make_value(1, number, route.key, 100)
        records.append(Stored(topic_of(1), partition, offsets[partition], route.key, value))
        offsets[partition] += 1
    return records


def of_partition(partition: int) -> list[int]:
    """The records in doubt that are to go to a partition."""
    routes = {number: route_of(1, number, PARTITIONS) for number in range(2, 22)}
    return [n for n, route in routes.items() if route != (None, None) and partition_of(route, PARTITIONS) == partition]


def test_a_call_in_doubt_can_leave_the_first_rows_of_each_partition(cut_short: Account) -> None:
    rows = of_partition(1)
    assert len(rows) > 2
    for count in range(len(rows) + 1):
        verdict = judge([cut_short], stored([0, 1, *rows[:count]]), PARTITIONS)
        assert wrong(verdict) == set()
        assert (verdict.in_doubt, verdict.in_doubt_found) == (20, count)


def test_a_call_in_doubt_leaves_no_other_rows(cut_short: Account) -> None:
    rows = of_partition(1)
    assert wrong(judge([cut_short], stored([0, 1, *rows[1:]]), PARTITIONS)) == {"half"}
    assert wrong(judge([cut_short], stored([0, 1, rows[0], *rows[2:]]), PARTITIONS)) == {"half"}
    assert wrong(judge([cut_short], stored([0]), PARTITIONS)) == {"missing"}, "what was appended before is not in doubt"


def test_acknowledged_is_not_in_doubt(cut_short: Account) -> None:
    """A callback may run before the call that appended the record has returned."""
    number = of_partition(1)[0]
    cut_short.hear(number, None, RecordMetadata(topic_of(1), 1, 0, 0))
    assert wrong(judge([cut_short], stored([0, 1]), PARTITIONS)) == {"lost"}
    assert wrong(judge([cut_short], stored([0, 1, number]), PARTITIONS)) == set()


def test_acknowledged_without_an_offset(cut_short: Account) -> None:
    for partition in (0, 1):
        number = of_partition(partition)[0]
        cut_short.hear(number, None, RecordMetadata(topic_of(1), partition, -1, 0))
    numbers = [of_partition(partition)[0] for partition in (0, 1)]
    verdict = judge([cut_short], stored(sorted({0, 1, *numbers})), PARTITIONS)
    assert wrong(verdict) == set()
    assert verdict.acknowledged == len(numbers)


# --- the files --------------------------------------------------------------------------------------------


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "a byte is changed": (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "CRC", "missing"),
    "the end is cut off": (lambda data: data[:-1], "not a whole batch", "missing"),
    "a batch is there twice": (lambda data: data * 2, "offset 0 instead of", "duplicated"),
}


@pytest.mark.parametrize(("damage", "problem", "kind"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_segment(scene: Any, damage: Callable[[bytes], bytes], problem: str, kind: str) -> None:
    segment = min(path for path in scene.log_dir.glob("stress-*/*.log") if path.stat().st_size)
    segment.write_bytes(damage(segment.read_bytes()))
    problems: list[str] = []
    records = list(read_log(scene.log_dir, problems, TOPICS))
    assert problem in problems[0]
    assert kind in wrong(judge(scene.accounts, records, PARTITIONS))
