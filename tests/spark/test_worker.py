from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark_writes import stored

from shmaccum import ProducerConfig
from shmaccum.spark import producer
from shmaccum.spark.worker import acknowledge_at_once

PROGRAM = """
import os, signal
from shmaccum.spark import producer
for number in range(1000):
    producer({settings!r}).send("t", b"%d" % number, partition=0)
{end}
"""


def test_a_process_has_one_producer_for_a_configuration_until_it_is_closed(config: ProducerConfig) -> None:
    """Garbage collection of a process that is no worker stays as it is."""
    explicit, frozen = {name: config[name] for name in config.explicit}, gc.get_freeze_count()
    with producer(config) as first:
        assert first is producer(config)
        assert first is producer(dict(reversed(explicit.items())))
        with producer(explicit | {"max.block.ms": "7"}) as other:
            assert other is not first
        first.send("t", b"1")
    second = producer(config)
    assert second is not first
    first.close()
    assert producer(config) is second
    assert second.send("t", b"2").get(10).topic == "t"
    assert gc.get_freeze_count() == frozen


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"], ids=["exits", "is killed"])
def test_what_a_worker_has_sent_is_delivered_when_it(
    end: str, configure: Callable[..., ProducerConfig], until_gone: Callable[..., None]
) -> None:
    config = configure(linger_ms=2_000)
    settings = {name: config[name] for name in config.explicit}
    subprocess.run([sys.executable, "-c", PROGRAM.format(settings=settings, end=end)], check=not end, timeout=60)
    if end:
        until_gone(config.slab_name(os.geteuid()))
    # A process that exits has waited for it.
    assert [record.value for record in stored(Path(config.log_dir), "t")] == [b"%d" % i for i in range(1000)]


# --- connections of Spark's own that put off their acknowledgements ---------------------------------------


Ends = tuple[socket.socket, socket.socket]


def puts_off(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0


def take_turns(asking: socket.socket, answering: socket.socket) -> None:
    """Let them, until the kernel takes it that an answer follows soon."""
    while not puts_off(answering):
        asking.sendall(b"a row")
        answering.recv(100)
        answering.sendall(b"an answer")
        asking.recv(100)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as asking,
        listening.accept()[0] as answering,
    ):
        yield asking, answering


def test_every_task_acknowledges_at_once_after_turns(ends: Ends) -> None:
    for _ in range(2):
        take_turns(*ends)
        acknowledge_at_once()
        assert not puts_off(ends[1])


def test_connections_stay_as_they_are_otherwise(ends: Ends) -> None:
    beside, other = socket.socketpair()
    with beside, other:
        open_before = os.listdir("/proc/self/fd")
        acknowledge_at_once()
        assert os.listdir("/proc/self/fd") == open_before
        for one, another in (ends, (beside, other)):
            one.sendall(b"rows")
            assert another.recv(100) == b"rows"
