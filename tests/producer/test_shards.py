"""Producers with equal settings that are divided among several slabs, with Apache Kafka."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from brokers import consume_values
from fixture_types import Link, Settings, Start
from processes import finish
from producers import kill_sender, sender_pid, sender_starts, stop_sender, wait_until, wait_until_gone

from shmaccum import Producer
from shmaccum.errors import SlabAbiError
from shmaccum.shm.names import slabs_of
from tools.kafka import KafkaCluster

SHARDS = 3
PROCESSES = 6
RECORDS = 200

Sharded = Callable[..., dict[str, object]]


@pytest.fixture
def sharded(kafka: KafkaCluster, kafka_settings: Settings, slab_name: str, topic: str) -> Iterator[Sharded]:
    """Return a function that gives settings with shards, for a topic of two partitions; all must be gone at the end.

    By a number it gives those of one shard.
    """
    kafka.admin.create_topic(topic, 2)

    def make(number: int | None = None, **changes: object) -> dict[str, object]:
        own = {} if number is None else {"shmaccum_name": f"{slab_name}@{number}"}
        return kafka_settings(bootstrap_servers=kafka.bootstrap_servers, shmaccum_shards=SHARDS, **own, **changes)

    yield make
    for number in range(SHARDS):
        wait_until_gone(f"{slab_name}@{number}")


def test_processes_are_divided_evenly_and_each_keeps_its_order(
    sharded: Sharded, slab_name: str, kafka: KafkaCluster, topic: str, start: Start
) -> None:
    def send_numbered(link: Link, process: int) -> str:
        with Producer(sharded()) as producer:
            link.send("there")
            link.recv()
            for number in range(RECORDS):
                producer.send(topic, b"%d %d" % (process, number), partition=number % 2)
            producer.flush(60)
            return producer._slab.name

    children = [start(partial(send_numbered, process=number), how="fork").ready() for number in range(PROCESSES)]
    joined = Counter(finish(*children))

    assert joined == {f"{slab_name}@{number}": PROCESSES // SHARDS for number in range(SHARDS)}
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    for partition, values in found.items():
        for process in range(PROCESSES):
            mine = [value for value in values if value is not None and value.startswith(b"%d " % process)]
            assert mine == [b"%d %d" % (process, number) for number in range(partition, RECORDS, 2)]


def test_producers_of_a_process_share_one(sharded: Sharded, slab_name: str) -> None:
    """Also those with another client.id; the memory is divided. A name with a number chooses one."""
    with ExitStack() as stack:
        producers = [stack.enter_context(Producer(sharded(client_id=f"c{number}"))) for number in range(4)]
        (name,) = {producer._slab.name for producer in producers}
        assert name.partition("@")[1]
        slab = producers[0]._slab
        assert slab.geometry.slot_count == (1 << 20) // SHARDS // slab.geometry.slot_size
        chosen = {stack.enter_context(Producer(sharded(2)))._slab.name for _ in range(2)}
        assert chosen == {f"{slab_name}@2"}


def accept_and_be_killed(link: Link, settings: dict[str, object], topic: str) -> None:
    """Send a record that no sender takes; then kill the sender and this process."""
    producer = Producer(settings)
    producer.send(topic, b"before", partition=0).get(30)
    stop_sender(producer)
    producer.send(topic, b"left", partition=0)
    link.send(sender_pid(producer))
    link.recv()
    producer.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_the_records_of_a_deserted_shard_are_delivered(
    is_first: bool, sharded: Sharded, kafka: KafkaCluster, topic: str, start: Start
) -> None:
    """A process in another shard starts a sender for them; also one that joins later."""
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(Producer(sharded(0)))
        child = start(accept_and_be_killed, sharded(1), topic)
        sender = child.hear()
        child.kill()
        os.kill(sender, signal.SIGKILL)
        if not is_first:
            stack.enter_context(Producer(sharded(0)))
        settings = {"bootstrap.servers": kafka.bootstrap_servers}
        wait_until(lambda: consume_values(settings, topic)[0] == [b"before", b"left"], "all is delivered")


def test_a_killed_sender_is_replaced_in_its_shard_alone(sharded: Sharded, topic: str) -> None:
    with Producer(sharded(0)) as first:
        first.send(topic, b"1", partition=0).get(30)
        kill_sender(first)
        assert first.send(topic, b"2", partition=0).get(30).offset == 1
        time.sleep(0.1)
        assert sender_starts(first) == 2


@pytest.mark.parametrize("number", [1, SHARDS + 1])
def test_another_number_of_shards_is_refused(number: int, sharded: Sharded, slab_name: str) -> None:
    """Also where the program would get a slab that no other one is in: commands take the name for all of them."""
    with Producer(sharded(0)) as producer:
        with pytest.raises(SlabAbiError, match=f"{slab_name}@0.*shmaccum.shards is {SHARDS} there and {number} here"):
            Producer(sharded() | {"shmaccum.shards": number})
        assert slabs_of(slab_name) == [producer._slab.name]
