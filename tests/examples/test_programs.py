"""The programs of examples/ with processes of their own: one is killed in the middle of its work."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from example_programs import Example, Program


def kill_first(program: Program, line: str, enough: int = 100) -> str:
    """Kill the worker that has printed the first of some lines, while it works; return its id.

    Nothing is read meanwhile, so no worker can come to its end: the pipe is full before.
    """
    program.read_until(lambda: len(program.words(line)) >= enough)
    pid = program.words(line)[0][1]
    os.kill(int(pid), signal.SIGKILL)
    return pid


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(example: Example, method: str) -> None:
    with example.python("multiprocessing_workers.py", method, ORDERS=4000) as program:
        killed = kill_first(program, "accepted")
        assert program.wait() == 0
    accepted = program.words("accepted")
    assert program.words("worker")[0][1:] == ["ended", "with", "-9"]
    assert Counter(pid for _, pid in accepted)[killed] < 4000
    assert sorted(Counter(pid for _, pid in accepted).values())[1:] == [4000, 4000]
    stored = example.stored()
    assert set(stored.values()) == {1}
    assert {order for order, _ in accepted} <= stored.keys()


def test_process_pool(example: Example) -> None:
    orders = 12_000
    with example.python("process_pool.py", ORDERS=orders) as program:
        os.kill(example.wait_for_worker(program), signal.SIGKILL)
        assert program.wait() == 0
    assert len(program.words("a")) == 1, "one pool was broken"
    assert [int(order) for order, _ in program.words("accepted")] == sorted(range(orders))
    assert {int(order) for order in example.stored()} == set(range(orders))


def test_airflow_like_task(example: Example) -> None:
    orders = 5000
    with example.python("airflow_like.py", ORDERS=orders) as program:
        kill_first(program, "accepted")
        assert program.wait() == 0
    assert [words[-1] for words in program.words("attempt")] == ["-9", "0"]
    accepted = Counter(order.split(":")[0] for order, _ in program.words("accepted"))
    assert len(accepted) == orders
    assert orders < accepted.total() < 2 * orders
    assert accepted <= example.stored()


def test_logging(example: Example) -> None:
    with example.python("logging_setup.py", LINES=3000) as program:
        killed = kill_first(program, "logged")
        assert program.wait() == 0
    logged = Counter(pid for _, pid, _, _ in program.words("logged"))
    assert {dropped for *_, dropped in program.words("logged")} == {"0"}
    assert logged[killed] < 3000
    stored = example.stored("logs")
    assert stored["MainProcess"] == 2
    names = ("ForkProcess-1", "ForkProcess-2", "ForkProcess-3")
    assert sorted(stored[name] for name in names)[1:] == [3000, 3000]
    assert min(stored[name] for name in names) >= logged[killed]
