"""An example of examples/ with a slab of its own, and a web server that is hurt under load."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_programs import Example, Program, Shop
from processes import wait_until

from tools.kafka import KafkaCluster
from tools.kafka.ports import free_port


@pytest.fixture
def example(kafka: KafkaCluster, slab_name: str, tmp_path: Path) -> Iterator[Example]:
    made = Example(kafka, slab_name, tmp_path)
    yield made
    made.end()


@pytest.fixture
def serve(example: Example) -> Callable[..., Shop]:
    """Return ``serve(command, cwd)``: start a server of two workers, kill one, reload, and end it, all under load."""

    def run(*command: object, cwd: str, announces: str = "") -> Shop:
        """Serve. ``announces``: what the log says of a worker once signals reach it, with {} for its process id."""

        def wait_for_workers(server: Program, count: int) -> set[str]:
            workers = shop.wait_for_workers(count)
            expected = [announces.format(worker) for worker in workers]
            wait_until(lambda: all(text in server.errors() for text in expected), f"its log says: {expected}")
            return workers

        port = free_port()
        shop = Shop(port, example.slab)
        address = [str(part).replace("PORT", str(port)) for part in command]
        with example.program(*address, cwd=cwd) as server, shop.open():
            first = wait_for_workers(server, 2)
            os.kill(int(min(first)), signal.SIGKILL)
            replaced = wait_for_workers(server, 3)
            server.process.send_signal(signal.SIGHUP)
            wait_for_workers(server, len(replaced) + 2)
            server.process.terminate()
            server.wait()
        stored = example.stored()
        assert not shop.refused
        assert set(stored.values()) == {1}, "each record is there once"
        assert shop.accepted.keys() - stored.keys() == set(), "all that was accepted is there"
        return shop

    return run
