"""A driver's process ends: what it has left undecided ends, too, without a next plan."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fixture_types import LogCapture
from processes import wait_until
from producers import kafka_settings, wait_until_gone

from shmaccum import Producer
from shmaccum.config import ProducerConfig
from shmaccum.procfs import start_time
from shmaccum.transactions import driver_watch
from shmaccum.transactions.administration import ONGOING, Transactions
from shmaccum.transactions.batch_committer import BatchCommitter, Plan
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.coordinator import PreparedTransaction, deadline_after
from shmaccum.transactions.writer_id import Writer
from shmaccum.transactions.writer_state import Driver
from tools.kafka import KafkaCluster


class Query:
    """A writer with a task, in this process, and a driver's process."""

    def __init__(self, producer: Producer, topic: str, driver: Driver, *, is_job: bool) -> None:
        self.producer, self.topic, self.driver = producer, topic, driver
        self.config = producer.config
        name = f"{topic}-{'job' if is_job else 'query'}"
        self.writer = Writer(name, f"{name}-", f"{topic}-log", driver=None if is_job else driver)

    def plan(self) -> Plan:
        with BrokerClient(self.config) as client:
            plan = BatchCommitter(client, self.config, self.writer).plan()
        of_job = plan if self.writer.driver is None else None
        driver_watch.end_batch_after(self.driver, self.config, self.writer, of_job)
        return plan

    def write(self) -> PreparedTransaction:
        transactions = self.producer.transactions
        transactions.init(f"{self.writer.prefix}0")
        transactions.begin()
        self.producer.send(self.topic, b"value")
        return transactions.prepare()

    def state(self) -> str:
        with BrokerClient(self.config) as client:
            transaction = Transactions(client, self.config).describe(f"{self.writer.prefix}0", deadline_after(30_000))
        return "none" if transaction is None else transaction.state


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that stands for a driver's JVM."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def driver(process: subprocess.Popen[bytes]) -> Driver:
    return Driver.of(process.pid)


@pytest.fixture
def producer(kafka: KafkaCluster, slab_name: str, topic: str) -> Iterator[Producer]:
    kafka.admin.create_topic(topic, partitions=1)
    with Producer(kafka_settings(kafka.bootstrap_servers, slab_name, transactional_id=slab_name)) as producer:
        yield producer
    wait_until_gone(slab_name)


def watch_is_gone(driver: Driver) -> bool:
    """Return whether the watch's process has ended: it closes its socket before it ends batches."""
    program = b"serve(%d, %d)" % (driver.pid, driver.ticks)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if program in path.read_bytes():
                return False
    return True


@pytest.mark.parametrize(("end", "is_job"), [(signal.SIGTERM, True), (signal.SIGKILL, False)], ids=["job", "query"])
def test_a_drivers_end_aborts_what_is_undecided(
    producer: Producer, topic: str, driver: Driver, process: subprocess.Popen[bytes], end: int, is_job: bool
) -> None:
    query = Query(producer, topic, driver, is_job=is_job)
    for _ in range(2):  # a second plan finds the watch of the first
        query.plan()
        query.write()
    assert query.state() == ONGOING
    process.send_signal(end)
    process.wait()
    wait_until(lambda: query.state() == "CompleteAbort")
    wait_until(lambda: watch_is_gone(driver))


def test_a_job_that_has_ended_is_forgotten(
    producer: Producer, topic: str, driver: Driver, process: subprocess.Popen[bytes]
) -> None:
    """Else a driver of many jobs would end each of them again."""
    query = Query(producer, topic, driver, is_job=True)
    query.plan()
    query.write()
    driver_watch.forget(driver, query.writer)
    assert not watch_is_gone(driver)
    process.kill()
    process.wait()
    wait_until(lambda: watch_is_gone(driver))
    assert query.state() == ONGOING
    with BrokerClient(query.config) as client:
        assert len(BatchCommitter(client, query.config, query.writer).recover()[1]) == 1


def test_a_taken_name_is_a_warning(driver: Driver, topic: str, caplog: LogCapture) -> None:
    """If another user has taken the name of the watch's socket, no settings are sent to it."""
    config = ProducerConfig.parse({"bootstrap.servers": "localhost:1"})
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(driver_watch.socket_name(driver))  # and does not listen
        driver_watch.end_batch_after(driver, config, Writer(topic, f"{topic}-"), None)
    assert "nothing watches the driver" in caplog.text
    assert start_time(driver.pid) == driver.ticks


def test_a_driver_that_ends_while_it_is_looked_at(topic: str, process: subprocess.Popen[bytes]) -> None:
    """It has no start time any more. Its watch waited for ever."""
    process.kill()
    wait_until(lambda: start_time(process.pid) == 0)
    driver = Driver.of(process.pid)
    assert driver.is_gone()
    config = ProducerConfig.parse({"bootstrap.servers": "localhost:1", "max.block.ms": 100})
    driver_watch.end_batch_after(driver, config, Writer(topic, f"{topic}-"), None)
    wait_until(lambda: watch_is_gone(driver), "the watch ends")
