"""A Celery worker with forked children: one is killed, and the worker is restarted by SIGHUP, with tasks waiting."""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import count

from celery import Celery
from celery.result import AsyncResult
from example_programs import BIN, EXAMPLES, Example
from producers import PATIENCE_S

TASKS = 40


def test_celery_prefork(example: Example) -> None:
    queue = {"data_folder_in": f"{example.directory}/queue", "data_folder_out": f"{example.directory}/queue"}
    client = Celery("client", broker="filesystem://", backend=f"file://{example.directory}/results")
    client.conf.broker_transport_options = queue | {"control_folder": f"{example.directory}/queue"}
    for folder in ("queue", "results"):
        (example.directory / folder).mkdir()
    orders = count()
    accepted: Counter[str] = Counter()
    pids: list[int] = []

    def send() -> dict[str, AsyncResult[int]]:
        names = {f"{example.slab}-{next(orders)}": task for _ in range(TASKS // 2) for task in ("accept", "deliver")}
        return {order: client.send_task(f"tasks.{task}", [order]) for order, task in names.items()}

    def receive(results: dict[str, AsyncResult[int]]) -> None:
        for order, result in results.items():
            pids.append(result.get(timeout=PATIENCE_S, interval=0.01))
            accepted[order] += 1

    path = os.pathsep.join([str(EXAMPLES / "celery"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = (
        BIN / "celery",
        "-A",
        "tasks",
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "2",
        "--loglevel",
        "warning",
    )
    with example.program(*command, cwd=example.directory, PYTHONPATH=path) as worker:
        receive(send())
        first = set(pids)
        waiting = send()
        os.kill(min(first), signal.SIGKILL)
        receive(waiting)
        waiting = send()
        worker.process.send_signal(signal.SIGHUP)
        receive(waiting)
        receive(send())
        assert not set(pids[-TASKS:]) & first, "these children came with the restart"
    assert accepted.total() == 4 * TASKS
    assert accepted <= example.stored()
