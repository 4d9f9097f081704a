"""Commands that get the name of several slabs: they look at all of them, and serve all of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from fixture_types import Capture, Command, Link, Start
from processes import wait_until

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.observe.prometheus import SlabCollector
from shmaccum.observe.report import SlabReport, all_reports, report
from shmaccum.shm.names import slabs_of
from shmaccum.shm.reclaim import sweep
from tools.kafka import KafkaCluster

Settings = dict[str, object]
SLOW = {"linger.ms": 600_000, "delivery.timeout.ms": 700_000}


@pytest.fixture
def settings(kafka: KafkaCluster, topic: str, slab_name: str) -> Iterator[Settings]:
    """Return settings of producers and senders with two shards, which must be gone at the end."""
    kafka.admin.create_topic(topic)
    yield {
        "bootstrap.servers": kafka.bootstrap_servers,
        "shmaccum.name": slab_name,
        "shmaccum.shards": 2,
        "sender.idle.ms": 50,
        "buffer.memory": 1 << 20,
    }
    # One whose only user was killed is removed by the next sweep.
    wait_until(lambda: not sweep() and not slabs_of(slab_name), "all shards are removed")


def of_shard(settings: Settings, number: int) -> Settings:
    return settings | {"shmaccum.name": f"{settings['shmaccum.name']}@{number}"}


def test_looking_at_all_of_them(settings: Settings, slab_name: str, topic: str, capfd: Capture) -> None:
    with Producer(of_shard(settings, 0)) as first, Producer(of_shard(settings, 1)) as second:
        for producer in (first, second, second):
            producer.send(topic, b"value").get(60)

        assert main(["status", slab_name]) == 0
        shown = capfd.readouterr().out
        assert (
            f"{slab_name}: 2 shards, 2 senders, 2 producers, 0 B of 1.0 MiB used, 0 records queued, 3 records" in shown
        )
        assert main(["status", "--json", slab_name]) == 0
        shards = [slab["name"] for slab in json.loads(capfd.readouterr().out)["slabs"]]
        assert shards == [f"{slab_name}@0", f"{slab_name}@1"]
        assert main(["status", "--json", f"{slab_name}@1"]) == 0
        assert [slab["name"] for slab in json.loads(capfd.readouterr().out)["slabs"]] == shards[1:]
        assert main(["top", "--once", "--json", slab_name]) == 0
        assert [slab["name"] for slab in json.loads(capfd.readouterr().out)["slabs"]] == shards
        assert main(["probe", slab_name]) == 0
        assert capfd.readouterr().out == "healthy\n"

        (sent,) = [each for each in SlabCollector([slab_name]).collect() if each.name == "shmaccum_records_sent"]
        assert {
            (sample.labels["slab"], sample.labels["shard"]): sample.value
            for sample in sent.samples
            if sample.labels["topic"] == topic
        } == {(slab_name, "0"): 1, (slab_name, "1"): 2}
        parts = [each for each in SlabCollector([slab_name], partitions=True).collect() if each.name == sent.name]
        assert {sample.labels["shard"] for each in parts for sample in each.samples} == {"0", "1"}


def send_and_stay(link: Link, settings: Settings, topic: str) -> None:
    producer = Producer(settings)
    producer.send(topic, b"value", partition=0)
    link.send(report(producer._slab.name).sender.pid)
    link.recv()


def test_removing_all_of_them(settings: Settings, slab_name: str, topic: str, start: Start, capfd: Capture) -> None:
    for number in (0, 1):
        child = start(send_and_stay, of_shard(settings, number) | SLOW, topic)
        sender = child.hear()
        child.kill()
        os.kill(sender, signal.SIGKILL)
    shards = [f"{slab_name}@{number}" for number in (0, 1)]
    wait_until(lambda: main(["destroy", "--force", slab_name]) == 0, "the kernel has let go of them")
    assert capfd.readouterr().out.splitlines() == [f"removed slab '{name}'; 1 records were lost" for name in shards]


def senders_of(slab_name: str) -> list[int]:
    """Return the pids of the living senders of a name."""
    there = [slab.sender for slab in all_reports(slab_name) if isinstance(slab, SlabReport)]
    return [sender.pid for sender in there if sender.alive and sender.pid is not None]


@pytest.mark.parametrize(
    ("number", "hit", "status"),
    [
        (signal.SIGTERM, lambda own, senders: [own], 0),
        (signal.SIGINT, lambda own, senders: [own, *senders], 0),  # as of a terminal, to the whole group
        (signal.SIGKILL, lambda own, senders: senders[1:], 1),
    ],
)
def test_serving_all_of_them(
    number: int,
    hit: Callable[[int, list[int]], list[int]],
    status: int,
    settings: Settings,
    options: list[str],
    slab_name: str,
    topic: str,
    shmaccum: Command,
) -> None:
    """A signal goes to all senders, once. If one fails, the others deliver what they have, and end."""
    with shmaccum("sender", *options, "-X", "sender.idle.ms=-1") as process:
        wait_until(lambda: len(senders_of(slab_name)) == 2, "both are served")
        senders = senders_of(slab_name)
        with Producer(of_shard(settings, 0) | SLOW) as producer:
            assert report(producer._slab.name).sender.pid == senders[0]
            future = producer.send(topic, b"lingers for ten minutes")
            for pid in hit(process.pid, senders):
                os.kill(pid, number)
            assert future.get(30).topic == topic
        assert process.wait(60) == status


def test_one_sender_for_one_shard(options: list[str], slab_name: str, shmaccum: Command) -> None:
    with shmaccum("sender", *options, "-X", f"shmaccum.name={slab_name}@1", "-X", "sender.idle.ms=-1") as process:
        wait_until(lambda: senders_of(slab_name) == [process.pid], "it serves")
        assert slabs_of(slab_name) == [f"{slab_name}@1"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
