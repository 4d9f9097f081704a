"""A sender without descriptors: it goes on when it gets some, and loses nothing."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from producers import Settings, sender_pid, sender_starts, wait_until
from senders import read_values

from shmaccum import Producer
from shmaccum._core import Super


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Keep a process from opening further descriptors while its first three are open."""
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


def test_no_descriptor_for_the_log_or_a_new_topic(settings: Settings, log_dir: Path) -> None:
    with Producer(settings(retry_backoff_ms=20)) as producer:
        producer.partitions_for("t")
        before = producer.send("t", b"before", partition=0)
        assert before.get(20).offset == 0
        words = producer._slab.words
        with no_descriptors(sender_pid(producer)):
            futures = [producer.send("t", b"%d" % number, partition=number) for number in (1, 2)]
            again = producer.send("t", b"again", partition=0)
            wait_until(lambda: words[Super.BATCHES_RETRIED] >= 4, "the sender tries again")
        assert [future.get(20).offset for future in (*futures, again)] == [0, 0, 1]
        with no_descriptors(sender_pid(producer)):
            producer._slab.button.press()
            producer._accumulator.state.map.request("new")
            wait_until(lambda: producer._accumulator.state.map.topics["new"].answers, "the sender has tried")
        assert producer.send("new", b"value", partition=0).get(20).offset == 0
        assert sender_starts(producer) == 1
    assert [read_values(log_dir, "t", number) for number in range(3)] == [[b"before", b"again"], [b"1"], [b"2"]]


def test_no_descriptor_for_a_connection(settings: Settings, mock_servers: str, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    brokers = {"transport": "kafka", "log.dir": "", "bootstrap.servers": mock_servers}
    given = settings(retry_backoff_ms=20, reconnect_backoff_ms=20, reconnect_backoff_max_ms=50)
    with Producer(given | brokers | {"sender.log.file": str(log)}) as producer:
        partitions = sorted(producer.partitions_for("t"))
        with no_descriptors(sender_pid(producer)):
            futures = [producer.send("t", b"%d" % number, partition=number) for number in partitions]
            wait_until(lambda: "Too many open files" in log.read_text(), "the sender tries to connect")
        assert all(future.get(20) for future in futures)
        assert sender_starts(producer) == 1
