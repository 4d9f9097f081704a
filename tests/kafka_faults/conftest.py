"""Trials of faults, and the table of what came of them at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_faults.trial import PARTITIONS, Row, Trial
from processes import Child

from tools.kafka import KafkaCluster

_ROWS = pytest.StashKey[list[Row]]()
_HEADINGS = ("sent", "acknowledged", "found", "duplicated", "out of order")


@pytest.fixture
def trial(start: Callable[..., Child], slab_name: str, tmp_path: Path, topic: str) -> Iterator[Callable[..., Trial]]:
    """Return ``trial(fault, cluster, topics=2, ...)``: producers that append to new topics, to be started yet.

    ``topic_settings`` are of the topics, which are made unless ``make_topics`` is False; the rest is as for `Trial`.
    """
    trials: list[Trial] = []

    def make(
        fault: str,
        cluster: KafkaCluster,
        topics: int = 1,
        *,
        make_topics: bool = True,
        topic_settings: dict[str, object] | None = None,
        settings: dict[str, object] | None = None,
        **options: Any,
    ) -> Trial:
        names = tuple(f"{topic}-{number}" for number in range(topics))
        if make_topics:
            for name in names:
                cluster.admin.create_topic(name, PARTITIONS, settings=topic_settings)
        trials.append(Trial(fault, cluster, start, slab_name, tmp_path, names, settings or {}, **options))
        return trials[-1]

    yield make
    for each in trials:
        each.abandon()


@pytest.fixture
def finish(request: pytest.FixtureRequest) -> Callable[..., Row]:
    """Return ``finish(trial, ...)``: `Trial.finish`, with the row noted for the table."""
    rows = request.config.stash.setdefault(_ROWS, [])

    def note(trial: Trial, **options: Any) -> Row:
        row = trial.finish(**options)
        rows.append(row)
        return row

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    width = max(len(row.fault) for row in rows)
    terminalreporter.section("what came of the faults")
    terminalreporter.write_line(
        " ".join(["fault".ljust(width), *(f"{heading:>12}" for heading in _HEADINGS), " errors"])
    )
    for row in rows:
        numbers = (row.sent, row.acknowledged, row.found, row.duplicated, row.out_of_order)
        errors = ", ".join(f"{count:,} {name}" for name, count in sorted(row.errors.items()))
        in_spite = f" ({row.stored_in_spite:,} of them stored)" if row.stored_in_spite else ""
        line = " ".join([row.fault.ljust(width), *(f"{number:>12,}" for number in numbers), f" {errors}{in_spite}"])
        terminalreporter.write_line(line.rstrip())
