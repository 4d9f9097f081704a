"""What counts as worse than an earlier commit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.errors import BenchmarkError
from tools.benchmark.regress import as_text, changes
from tools.benchmark.results import Result


def run(records_per_s: float, cpu_us: float, **trouble: str) -> Result:
    """Return the result of one round of a commit."""
    figures = rounds(records_per_s=[records_per_s], cpu_us_per_batch=[cpu_us], batch_fill=[0.5])
    return result(("records", [variant("sink", {"shmaccum": figures}, **trouble)]))


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ([100, 100, 100], [99, 99, 99], False),  # by one percent
        ([100, 100, 100], [95, 95, 95], True),
        ([100, 100, 100], [110, 110, 110], False),
        ([100, 120, 80], [95, 114, 76], True),  # noise that both have is none of the ratio's
        ([100, 100, 100], [95, 115, 80], False),
    ],
)
def test_by_more_than_its_noise(before: Sequence[float], after: Sequence[float], worse: bool) -> None:
    found = {
        each.figure: each
        for each in changes([run(rate, 1000 / rate) for rate in before], [run(rate, 1000 / rate) for rate in after])
    }
    assert found.keys() == {"records_per_s", "cpu_us_per_batch"}, "others have no better"
    for each in found.values():
        assert each.is_worse == worse
        assert ("WORSE" in as_text([each])) == worse
    assert found["records_per_s"].ratio.median == pytest.approx(found["cpu_us_per_batch"].ratio.median, rel=1e-4)


def test_a_void_round() -> None:
    with pytest.raises(BenchmarkError, match="records/sink is void: it lost a record"):
        changes([run(1, 1)], [run(1, 1, void="it lost a record")])
