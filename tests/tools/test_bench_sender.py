"""The measurement of the sender runs and is complete."""

from __future__ import annotations

import pytest

from tools import bench_sender


def test_every_figure_of_sending_is_there() -> None:
    costs = bench_sender.sending_costs(3, 2, batches=30)
    assert [cost.partitions for cost in costs] == [3, 3]
    for cost in costs:
        assert 1 <= cost.batches_a_request <= 3
        assert cost.cpu_us_a_batch > 0
        assert cost.megabytes_a_core_second == pytest.approx(bench_sender.BATCH_SIZE / cost.cpu_us_a_batch)


@pytest.mark.parametrize("lingering", [False, True])
def test_every_figure_of_finding_is_there(lingering: bool) -> None:
    (cost,) = bench_sender.finding_costs(12, 1, lingering=lingering)
    assert (cost.partitions, cost.lingering) == (12, lingering)
    assert cost.cpu_us > 0
