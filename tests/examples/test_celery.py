"""A Celery worker with forked children: it is restarted by SIGHUP, and a child is killed in its task.

In this order: Celery's children ask the system for SIGKILL when the thread that forked them ends. A child that replaced
a killed one came from a thread that ends at the restart, so the restart kills it in its task, which can then be lost.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import count
from pathlib import Path

from celery import Celery
from celery.result import AsyncResult
from example_programs import BIN, EXAMPLES, Example
from processes import wait_until
from producers import PATIENCE_S

from shmaccum.procfs import start_time

TASKS = 20


def test_celery_prefork(example: Example) -> None:
    queue, written = example.directory / "queue", example.directory / "written"
    client = Celery("client", broker="filesystem://", backend=f"file://{example.directory}/results")
    client.conf.broker_transport_options = {
        "data_folder_in": str(queue),
        "data_folder_out": str(written),
        "control_folder": str(queue),
    }
    for folder in ("queue", "results", "written"):
        (example.directory / folder).mkdir()
    orders = count()
    accepted: Counter[str] = Counter()
    pids: list[int] = []

    def send_task(task: str, order: str) -> AsyncResult[int]:
        """Send a task. It joins the queue when it is written: a worker that finds a part of one ends with an error."""
        result = client.send_task(task, [order])
        (file,) = written.iterdir()
        file.rename(queue / file.name)
        return result

    def send() -> dict[str, AsyncResult[int]]:
        names = {f"{example.slab}-{next(orders)}": task for _ in range(TASKS // 2) for task in ("accept", "deliver")}
        return {order: send_task(f"tasks.{task}", order) for order, task in names.items()}

    def receive(results: dict[str, AsyncResult[int]]) -> None:
        for order, result in results.items():
            pids.append(result.get(timeout=PATIENCE_S, interval=0.01))
            accepted[order] += 1

    directories = [str(EXAMPLES / "celery"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    options = "-A tasks worker --pool prefork --concurrency 2 --loglevel warning --include killed_task"
    soon = ("--", "worker.lost_wait=0.1")  # after which a killed child's task is given to another
    command = (BIN / "celery", *options.split(), *soon)
    path = os.pathsep.join(filter(None, directories))
    with example.program(*command, cwd=example.directory, PYTHONPATH=path) as worker:
        receive(send())
        first = set(pids)
        cut_short = send()
        worker.process.send_signal(signal.SIGHUP)
        receive(cut_short)
        wait_until(lambda: not any(map(start_time, first)), "the worker ends its first children")
        receive(send())
        assert not set(pids[-TASKS:]) & first, "these children came with the restart"
        waiting = send()
        again = send_task("killed_task.accept_and_die", f"{example.slab}-killed")
        receive(waiting)
        assert again.get(timeout=PATIENCE_S, interval=0.01) != int((example.directory / "killed").read_text())
    stored = example.stored()
    assert stored.pop(f"{example.slab}-killed") == 2, "accepted before the kill, and again after it"
    assert stored.keys() == accepted.keys()
    # Celery runs a task again that had not ended when the worker was restarted, though its record was accepted.
    assert {order: times for order, times in stored.items() if times > 1 and order not in cut_short} == {}
