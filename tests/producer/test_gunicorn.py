"""A web application behind gunicorn: its workers fork, are patched by gevent, and share one producer's slab."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from fixture_types import Settings
from producers import wait_until, wait_until_gone
from runs import in_threads
from senders import read_topic

CLIENTS, REQUESTS = 16, 30


def ask(path: Path, number: int) -> tuple[int, str]:
    """Have the application send a record; return its answer."""
    with contextlib.closing(http.client.HTTPConnection("localhost")) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(str(path))
        connection.request("GET", f"/{number}", headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def is_served(path: Path, number: int) -> bool:
    try:
        return ask(path, number)[0] > 0
    except OSError:
        return False


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["each worker loads it", "preloaded"])
def test_gevent_workers_send_each_record_once(
    options: list[str], settings: Settings, slab_name: str, log_dir: Path, tmp_path: Path
) -> None:
    """While many requests are served at once, and the workers are replaced in the middle of it."""
    path = tmp_path / "socket"
    small = settings(buffer_memory=64 << 10, batch_size=4096, max_request_size=16 << 10)
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "2", "-b", f"unix:{path}", *options, "wsgi"]
    server = subprocess.Popen(
        command,
        cwd=Path(__file__).parent,
        env=os.environ | {"SHMACCUM_TEST_SETTINGS": json.dumps(small), "HOME": str(tmp_path)},
        stderr=(tmp_path / "errors").open("w"),
    )
    numbers = itertools.count(1)
    answers: dict[int, tuple[int, str]] = {}
    reloaded = threading.Event()

    def ask_next() -> None:
        number = next(numbers)
        try:
            answers[number] = ask(path, number)
        except (OSError, http.client.HTTPException) as error:  # its worker has left: it is not known what became
            answers[number] = (0, repr(error))

    def workers_that_answered() -> set[str]:
        return {pid for status, pid in list(answers.values()) if status == 200}

    def have_answered(workers: int) -> bool:
        ask_next()
        return len(workers_that_answered()) >= workers

    def client(_: int) -> None:
        for turn in range(REQUESTS):
            if turn == REQUESTS // 2 and not reloaded.is_set():
                reloaded.set()
                server.send_signal(signal.SIGHUP)
            ask_next()

    try:
        wait_until(lambda: is_served(path, next(numbers)), "gunicorn serves")
        wait_until(lambda: have_answered(2), "both workers answer")  # or one that starts misses the signal
        in_threads(CLIENTS, client)
        if not options:  # on a quick machine the old workers may have answered all: go on until a new one does
            wait_until(lambda: have_answered(3), "a worker that came with the reload answers")
    finally:
        server.terminate()
        server.wait(60)
        print((tmp_path / "errors").read_text())  # shown if the test has failed
    wait_until_gone(slab_name)

    assert not [answer for answer in answers.values() if answer[0] not in (0, 200)]
    taken = {number for number, (status, _) in answers.items() if status == 200}
    assert len(taken) > CLIENTS * REQUESTS // 2
    stored = Counter(int(record.key or b"") for records in read_topic(log_dir, "t").values() for record in records)
    assert set(stored.values()) == {1}
    assert taken - stored.keys() == set()
