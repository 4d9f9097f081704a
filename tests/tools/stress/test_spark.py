"""What is checked of Spark's jobs: nothing is wrong with retries, and whatever is wrong is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tools.stress import spark
from tools.stress.accounting import Route, make_value, partition_of
from tools.stress.spark import KEYS_A_TASK, TASKS_A_JOB, TOPIC, key_of
from tools.support.reading import Stored

PARTITIONS = 3
ROWS = 1000
"""Of a task; ten thousand take long to judge."""


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "ROWS_A_TASK", ROWS)


def attempt(number: int, task: int, rows: int = ROWS) -> list[Stored]:
    """Return the rows of one attempt at a task of job 0."""
    stored = []
    for row in range(rows):
        key = key_of(0, task, row)
        value = make_value(number, row, key, 0)
        stored.append(Stored(TOPIC, partition_of(Route(None, key), PARTITIONS), 0, key, value))
    return stored


@pytest.fixture(scope="module")
def job() -> list[Stored]:
    """All the rows of one job, each task's attempt being of its number."""
    return [row for task in range(TASKS_A_JOB) for row in attempt(task, task)]


def wrong(records: list[Stored], kills: int = 1) -> set[str]:
    verdict, _ = spark.judge_jobs(records, 1, kills, PARTITIONS)
    return {kind for kind, count in verdict.counts.items() if count}


def test_retries_that_kills_explain_are_right_and_others_are_not(job: list[Stored]) -> None:
    """Of an attempt that was killed, the first rows of each key are there."""
    assert wrong(job, kills=0) == set()
    assert wrong(attempt(99, 3, rows=103) + job) == set()
    assert wrong(attempt(99, 3) + job) == set()
    assert wrong(attempt(99, 3, rows=103) + job, kills=0) == {"unexpected"}


def test_a_task_that_no_attempt_completed(job: list[Stored]) -> None:
    assert wrong(attempt(99, 3, rows=50) + job[:-1]) == {"missing"}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda rows: rows.pop(500), {"missing", "half"}),
        (lambda rows: rows.append(rows[500]), {"duplicated"}),
        (lambda rows: rows.insert(500 + KEYS_A_TASK, rows.pop(500)), {"out of order"}),
        (lambda rows: rows.append(rows[0]._replace(value=b"?")), {"torn"}),
        (lambda rows: rows.append(rows.pop()._replace(partition=PARTITIONS)), {"misplaced"}),
    ],
)
def test_a_wrong_log(job: list[Stored], change: Callable[[list[Stored]], object], kinds: set[str]) -> None:
    rows = list(job)
    change(rows)
    assert wrong(rows) == kinds
