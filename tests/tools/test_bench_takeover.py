"""Measuring takeovers: a process has the lock after each death, and nothing stays behind."""

from __future__ import annotations

from tools.bench_takeover import Case, measure


def test_every_death_is_followed_by_a_takeover() -> None:
    times = measure(Case(waiters=2, churn=10, busy=1), rounds=2)

    assert len(times) == 2
    assert min(times) > 0
