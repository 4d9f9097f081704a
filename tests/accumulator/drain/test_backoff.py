"""Back-off: exponential, bounded, spread, and the same for a batch until its next attempt."""

from __future__ import annotations

import numpy as np
import pytest

from shmaccum.accumulator.drain.backoff import RetryBackoff
from shmaccum.shm.layout import ATTEMPTS_SHIFT, Slot

WORDS = 32


def headers(attempts: int, count: int = 1000) -> np.ndarray:
    """Return the headers of batches of one partition that have all come back at once."""
    rows = np.zeros((count, WORDS), np.uint64)
    rows[:, Slot.ATTEMPTS] = attempts << ATTEMPTS_SHIFT | 123_456_789
    rows[:, Slot.POSITION] = np.arange(count)
    rows[:, Slot.PARTITION] = 3
    return rows


def test_no_backoff_before_the_first_attempt() -> None:
    assert RetryBackoff(100, 1000).after_last_attempt_ms(headers(0)).tolist() == [0] * 1000


@pytest.mark.parametrize(("attempts", "middle"), [(1, 100), (2, 200), (3, 400), (4, 800)])
def test_backoff_doubles_with_jitter(attempts: int, middle: int) -> None:
    backoff = RetryBackoff(100, 1000).after_last_attempt_ms(headers(attempts))
    assert 0.8 * middle - 1 <= backoff.min() < 0.82 * middle
    assert 1.18 * middle < backoff.max() <= min(1.2 * middle, 1000)
    assert backoff.mean() == pytest.approx(middle, rel=0.03)


@pytest.mark.parametrize("attempts", [5, 6, 40, 65_535])
def test_backoff_has_a_maximum(attempts: int) -> None:
    backoff = RetryBackoff(100, 1000).after_last_attempt_ms(headers(attempts))
    assert backoff.max() == 1000
    assert backoff.min() >= 800


def test_backoff_is_stable_until_the_next_attempt() -> None:
    backoff = RetryBackoff(100, 1000)
    rows = headers(2)
    before = backoff.after_last_attempt_ms(rows)
    rows[:, [Slot.NEXT, Slot.PREVIOUS, Slot.DRAINED_MS, Slot.STATE]] = 77
    assert (backoff.after_last_attempt_ms(rows) == before).all()
    # A single row gives the same result as it does among others.
    assert [backoff.after_last_attempt_ms(rows[each : each + 1])[0] for each in range(1000)] == before.tolist()
    assert len(set((backoff.after_last_attempt_ms(headers(3)) - 2 * before).tolist())) > 100


def test_no_jitter_if_the_maximum_is_the_initial() -> None:
    """``ExponentialBackoff``: without jitter then."""
    for maximum in (50, 100):
        assert set(RetryBackoff(100, maximum).after_last_attempt_ms(headers(4)).tolist()) == {maximum}
    assert set(RetryBackoff(0, 0).after_last_attempt_ms(headers(4)).tolist()) == {0}
