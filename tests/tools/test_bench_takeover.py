"""Measuring takeovers: a process has the lock after each death, and nothing stays behind."""

from __future__ import annotations

import pytest

from tools.bench_takeover import Case, measure


@pytest.mark.parametrize("named", [True, False])
def test_every_death_is_followed_by_a_takeover(named: bool) -> None:
    times = measure(Case(named, waiters=2, churn=10, busy=1), rounds=2)

    assert len(times) == 2
    assert min(times) > 0
