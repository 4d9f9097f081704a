"""Each program has its turn, and all of its records are acknowledged."""

from __future__ import annotations

import pytest

from tools import bench_calls
from tools.sink import running_sink


@pytest.mark.parametrize("name", list(bench_calls.PROGRAMS))
def test_every_figure_is_there(name: str) -> None:
    _, contestants = bench_calls.PROGRAMS[name]
    with running_sink(1) as servers:
        turns = [bench_calls.measure(program, servers, 200) for program in contestants.values()]
    for turn in turns:
        assert turn.wall_us > 0
        assert turn.cpu_us >= 0
        assert turn.percentile_99_us >= turn.median_us >= 0
        assert (turn.median_us > 0) == (name == "one at a time")
