"""The tables of ``shmaccum top``: one a tab. A column knows how to show an item, and how to sort by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from shmaccum.cli.top.history import History
from shmaccum.observe.wording import in_bytes, partition_name, role_names, since, span
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.layout import BrokerState

_GAP: Final = 2
_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A column: how to sort items by it, and how it is shown, by default its ``key``.

    When there is no room for all columns, those of the highest ``rank`` are left out first. One that ``can_be_cut``
    stays as long as `_LEAST` of its columns of the terminal fit.
    """

    heading: str
    key: Callable[[Any], Any]
    text: Callable[[Any], str] | None = None
    is_text: bool = False
    rank: int = 1
    can_be_cut: bool = False

    def shown(self, item: Any) -> str:
        """Return an item's cell."""
        if self.text is not None:
            return self.text(item)
        value = self.key(item)
        return f"{value:,}" if isinstance(value, int) else str(value)


class Rows(NamedTuple):
    """A table to show: headings, whether each column is text, and the cells of each row."""

    headings: list[str]
    are_texts: list[bool]
    cells: list[list[str]]


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab: what it lists, and its columns.

    ``sorted_by`` is the number of the column that sorts it at first, the largest value on top; -1: as listed.
    """

    title: str
    items: Callable[[History], Sequence[Any]]
    columns: Callable[[History], Sequence[Column]]
    sorted_by: int = -1

    def rows(self, history: History, sorted_by: int, *, is_reversed: bool, contains: str, width: int) -> Rows:
        """Return the rows with a text, sorted by a column; -1 for the order of the report.

        ``is_reversed``: whether the least come first. ``width`` is that of the terminal.
        """
        columns = self.columns(history)
        items = list(self.items(history))
        if sorted_by >= 0:
            items.sort(key=columns[sorted_by].key, reverse=columns[sorted_by].is_text == is_reversed)
        elif is_reversed:
            items.reverse()
        cells = [[each.shown(item) for each in columns] for item in items]
        cells = [row for row in cells if contains.lower() in " ".join(row).lower()]
        room = width + _GAP
        kept: list[int] = []
        for number in sorted(range(len(columns)), key=lambda number: (columns[number].rank, number)):
            taken = max(cell_len(columns[number].heading) + 1, *(cell_len(row[number]) for row in cells), 0) + _GAP
            if columns[number].can_be_cut and room < taken and room >= _LEAST + _GAP:
                taken = room
                for row in cells:
                    if cell_len(row[number]) > room - _GAP:
                        row[number] = f"{set_cell_size(row[number], room - _GAP - 1)}…"
            if taken <= room or not kept:
                kept.append(number)
                room -= taken
        kept.sort()
        return Rows(
            [columns[number].heading + ("▾" if number == sorted_by else "") for number in kept],
            [columns[number].is_text for number in kept],
            [[row[number] for number in kept] for row in cells],
        )


def _partitions(history: History) -> Sequence[Column]:
    def rate(each: Any) -> float:
        return history.rate_of_partition(each.entry)

    return (
        Column("PARTITION", lambda each: (each.topic, each.partition), partition_name, is_text=True, rank=0),
        Column("QUEUED", lambda each: each.queued_records, rank=0),
        Column("BYTES", lambda each: each.queued_bytes, lambda each: in_bytes(each.queued_bytes)),
        Column("OLDEST", lambda each: each.oldest_ms, lambda each: span(each.oldest_ms) if each.oldest_ms else "-"),
        Column("FLYING", lambda each: each.in_flight_batches, rank=3),
        Column("SENT/s", rate, lambda each: f"{rate(each):,.0f}"),
        Column("SENT", lambda each: each.records_sent, rank=2),
        Column("BYTES SENT", lambda each: each.bytes_sent, lambda each: in_bytes(each.bytes_sent), rank=3),
        Column("FAILED", lambda each: each.records_failed, rank=2),
        Column("AGAIN", lambda each: each.batches_retried, rank=3),
        Column(
            "LEADER",
            lambda each: -1 if each.leader is None else each.leader,
            lambda each: ("none" if each.leader is None else str(each.leader)) + (" muted" if each.muted else ""),
            rank=2,
        ),
    )


def _brokers(history: History) -> Sequence[Column]:
    def latency(each: Any, percent: float) -> str:
        recent = history.recent_latency(each.node, each.address)
        return span(recent.percentile(percent) / 1000) if recent.count else "-"

    return (
        Column("BROKER", lambda each: each.node, lambda each: str(each.node) if each.node >= 0 else "-", rank=0),
        Column("ADDRESS", lambda each: each.address, is_text=True),
        Column(
            "STATE",
            lambda each: each.state,
            lambda each: f"{_STATES[each.state]} {since(each.since_ms)}",
            is_text=True,
            rank=0,
        ),
        Column("FLYING", lambda each: each.in_flight),
        Column("WAITS", lambda each: each.waiting_ms, lambda each: span(each.waiting_ms) if each.waiting_ms else "-"),
        Column("p50", lambda each: each.last_latency_us, lambda each: latency(each, 50)),
        Column("p99", lambda each: each.last_latency_us, lambda each: latency(each, 99)),
        Column("ANSWERS", lambda each: each.answers, rank=2),
        Column("THROTTLED", lambda each: each.throttle_ms, lambda each: f"{each.throttle_ms:,} ms", rank=2),
        Column("CONNECTED", lambda each: each.connections, rank=3),
        Column("FAILURES", lambda each: each.failures, rank=3),
        Column("LAST ERROR", lambda each: each.incident_ms, lambda each: _ago(each.incident_ms), rank=3),
    )


_STATES: Final = {
    BrokerState.UNUSED: "-",
    BrokerState.IDLE: "not connected",
    BrokerState.CONNECTING: "connecting",
    BrokerState.READY: "connected",
    BrokerState.FAILED: "failed",
}


def _processes(history: History) -> Sequence[Column]:
    def rate(each: Any) -> float:
        return history.rate_of_process(each.entry, each.attached_ms)

    return (
        Column("PROCESS", lambda each: each.pid, lambda each: str(each.pid), rank=0),
        Column("NAME", lambda each: each.name, is_text=True),
        Column("ROLE", lambda each: each.roles, lambda each: " ".join(role_names(each.roles)), is_text=True),
        Column(
            "STATE",
            lambda each: (each.alive, each.stopped),
            lambda each: "dead" if not each.alive else "stopped" if each.stopped else "runs",
            is_text=True,
        ),
        Column("RECORDS/s", rate, lambda each: f"{rate(each):,.0f}", rank=0),
        Column("RECORDS", lambda each: each.records, rank=2),
        Column("BYTES", lambda each: each.bytes, lambda each: in_bytes(each.bytes), rank=2),
        Column("HOLDS", lambda each: each.held_bytes, lambda each: in_bytes(each.held_bytes)),
        Column("WAITED", lambda each: each.wait_ns, lambda each: span(each.wait_ns / 1e6), rank=2),
        Column("IN VAIN", lambda each: each.exhausted, rank=3),
        Column("SINCE", lambda each: -each.attached_ms, lambda each: since(each.attached_ms), rank=3),
    )


def _errors(history: History) -> Sequence[Column]:
    names = {each.entry: f"{each.topic}-{each.partition}" for each in history.slab.partitions}

    def place(each: Any) -> str:
        if each.partition is not None:
            return names.get(each.partition, "-")
        return "-" if each.node is None else f"broker {each.node}" if each.node >= 0 else "bootstrap"

    return (
        Column("COUNT", lambda each: each.count, rank=0),
        Column("FIRST", lambda each: -each.first_ms, lambda each: _ago(each.first_ms), rank=1),
        Column("LAST", lambda each: each.last_ms, lambda each: "lasts" if each.lasts else _ago(each.last_ms), rank=0),
        Column("WHERE", place, is_text=True, rank=1),
        Column("ERROR", lambda each: each.error.__name__, is_text=True, rank=0),
        Column("TEXT", lambda each: each.text, is_text=True, rank=2, can_be_cut=True),
    )


def _latencies(history: History) -> Sequence[Column]:
    def quantile(percent: float) -> Callable[[Any], str]:
        return lambda each: each.text(each.recent.percentile(percent)) if each.recent.count else "-"

    return (
        Column("WHAT", lambda each: each.title, is_text=True, rank=0),
        Column("p50", lambda each: each.recent.percentile(50), quantile(50), rank=0),
        Column("p90", lambda each: each.recent.percentile(90), quantile(90), rank=2),
        Column("p99", lambda each: each.recent.percentile(99), quantile(99), rank=0),
        Column("p99.9", lambda each: each.recent.percentile(99.9), quantile(99.9), rank=2),
        Column("COUNT", lambda each: each.recent.count, rank=1),
        Column("EVER p99", lambda each: each.ever.percentile(99), lambda each: each.text(each.ever.percentile(99))),
        Column("EVER MAX", lambda each: each.ever.largest, lambda each: each.text(each.ever.largest), rank=1),
    )


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.1f} ms" if microseconds < 10_000 else span(microseconds / 1000)


class _Measure(NamedTuple):
    """A row of the tab of latencies: what it is, what was counted in the last seconds, and ever; how it is shown."""

    title: str
    recent: Distribution
    ever: Distribution
    text: Callable[[float], str]


_MEASURES: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "queue_time_us": ("record to its drain", _time),
    "delivery_time_us": ("record to its acknowledgement", _time),
    "memory_wait_us": ("wait for memory", _time),
    "batch_records": ("records in a batch", lambda value: f"{value:,.0f}"),
    "batch_fill_permille": ("a batch's fill", lambda value: f"{value / 10:.0f} %"),
    "compression_permille": ("compressed to", lambda value: f"{value / 10:.0f} %"),
    "record_size_bytes": ("record's size", in_bytes),
}


def measures(history: History) -> list[_Measure]:
    """Return the rows of the tab of latencies: the slab's, then the brokers'."""
    found = [
        _Measure(title, history.recent(name), history.slab.distributions[name], text)
        for name, (title, text) in _MEASURES.items()
    ]
    found += [
        _Measure(f"{each}: its answer", history.recent_latency(each.node, each.address), each.latency, _time)
        for each in history.slab.brokers
        if each.answers
    ]
    return [each for each in found if each.ever.count]


def _ago(wall_ms: int) -> str:
    return f"{since(wall_ms)} ago" if wall_ms else "-"


TABS: Final = (
    Tab("Partitions", lambda history: history.slab.shown_partitions(), _partitions, sorted_by=3),
    Tab("Brokers", lambda history: history.slab.brokers, _brokers),
    Tab("Processes", lambda history: history.slab.processes, _processes, sorted_by=4),
    Tab("Errors", lambda history: history.slab.incidents, _errors),
    Tab("Latencies", measures, _latencies),
)
