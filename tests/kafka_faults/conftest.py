"""Trials of faults, and the table of what came of them at the end of the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_faults.table import Table, lines
from kafka_faults.trial import MakeTrial, Row, Trial
from processes import Start

from tools.kafka import KafkaCluster

_ROW = "row of the table of faults"


@pytest.fixture
def trial(start: Start, slab_name: str, tmp_path: Path, topic: str) -> Iterator[MakeTrial]:
    """Return ``trial(fault, cluster, topics=2, ...)``: a trial with ``topics`` topics, and two producers at work.

    Creates the topics, with ``topic_settings``, if the cluster runs. Other arguments go to `Trial`.
    """
    trials: list[Trial] = []

    def make(
        fault: str,
        cluster: KafkaCluster,
        topics: int = 1,
        *,
        topic_settings: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        producers: int = 2,
        **options: Any,
    ) -> Trial:
        names = tuple(f"{topic}-{number}" for number in range(topics))
        made = Trial(fault, cluster, start, slab_name, tmp_path, names, settings or {}, **options)
        if any(node.is_running() for node in cluster.nodes.values()):
            made.make_topics(topic_settings or {})
        trials.append(made)
        made.start_producers(producers)
        return made

    yield make
    for each in trials:
        each.abandon()


@pytest.fixture
def table(record_property: Callable[[str, object], None]) -> Table:
    """Return the table, to finish trials with: its rows travel in the tests' reports, also from another process."""
    return Table(lambda row: record_property(_ROW, json.dumps(row)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    rows = [Row(*json.loads(row)) for report in reports for name, row in report.user_properties if name == _ROW]
    if rows:
        terminalreporter.section("what came of the faults")
        for line in lines(rows):
            terminalreporter.write_line(line)
