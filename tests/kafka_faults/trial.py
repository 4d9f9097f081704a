"""One fault: producers append under load, something breaks, and in the end every record is accounted for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from brokers import consume
from kafka_faults.load import PATIENCE_S, Load, append
from processes import Child, Start
from producers import wait_until, wait_until_gone

from shmaccum.errors import KafkaError
from shmaccum.shm.lifecycle import look, unlink
from tools.kafka import KafkaCluster
from tools.stress.accounting import NOT_HEARD, Account, Verdict, failure_of, judge, topic_of
from tools.support.reading import Stored
from tools.support.slabcheck import figures, sender_pid

PARTITIONS = 3
SETTINGS = {
    "linger.ms": 5,
    "batch.size": 4096,
    "request.timeout.ms": 1000,
    # Where all records are to arrive, they do, however slow the machine is; what is to expire sets its own.
    "delivery.timeout.ms": 120_000,
    "max.block.ms": 60_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "sender.idle.ms": 100,
    "shmaccum.max.processes": 64,
    "shmaccum.max.topics": 4,
    "shmaccum.max.partitions": 16,
}
"""Of the producers: small batches, and whatever fails is tried again soon."""


class Row(NamedTuple):
    """What came of a fault: how many records producers called `send` with, and the verdict on them."""

    sent: int
    verdict: Verdict

    @property
    def wrong(self) -> dict[str, int]:
        """The violations; errors are none here."""
        return {kind: count for kind, count in self.verdict.counts.items() if count and kind != "failed"}

    def all_arrived(self) -> bool:
        """Say whether every record was acknowledged, and is in the log."""
        return self.all_told() and not self.verdict.errors

    def all_told(self) -> bool:
        """Say whether every record is in the log and acknowledged, or else not there and given up by an error."""
        verdict = self.verdict
        given_up = verdict.errors.total()
        return (
            not self.wrong and self.sent == verdict.acknowledged + given_up and verdict.acknowledged == verdict.records
        )


class Trial:
    """Producers that append to topics of a cluster; topics can be created later.

    Attributes:
        topics: all of them.
        deleted: those that are not there any more.
        producers: that append, by writer.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        start: Start,
        name: str,
        directory: Path,
        topics: tuple[str, ...],
        settings: Mapping[str, object],
        **large: int,
    ) -> None:
        self.topics = topics
        self.deleted: set[str] = set()
        self.producers: dict[int, Child] = {}
        self._cluster = cluster
        self._start = start
        self._name = name
        self._sender_log = directory / "sender.log"
        self._directory = directory / "accounts"
        self._directory.mkdir()
        self._accounts: dict[int, Account] = {}
        self._writers = 0
        own = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": cluster.security_protocol,
            "shmaccum.name": name,
            "sender.log.file": str(self._sender_log),
        }
        self._load = Load(SETTINGS | own | dict(settings), self._directory, topics, PARTITIONS, **large)

    def make_topics(self, settings: Mapping[str, object]) -> None:
        """Make the topics."""
        for topic in self.topics:
            self._cluster.admin.create_topic(topic, PARTITIONS, settings=settings)

    # --- the load -----------------------------------------------------------------------------------

    def start_producers(self, count: int = 2) -> None:
        """Start producers, each with one writer: the first appends to the second topic, if there are two."""
        for _ in range(count):
            self._writers += 1
            self.producers[self._writers] = self._start(append, self._load, self._writers)

    def kill_producer(self, writer: int) -> None:
        """Kill a producer, and start another one instead."""
        self.producers.pop(writer).kill()
        self.start_producers(1)

    def await_heard(self, more: int = 200) -> None:
        """Wait until ``more`` further records of each producer are stored or failed."""
        self._await_each(self._heard, more, "been told of")

    def await_appended(self, more: int = 200) -> None:
        """Wait until each producer has appended ``more`` further records."""
        self._await_each(lambda account: account.appended, more, "appended")

    def await_refused(self, error: type[KafkaError]) -> None:
        """Wait until a record of one of the producers has failed with this error."""
        word = failure_of(error())
        self.await_that(
            lambda: any(word in self._account(writer).outcomes() for writer in self.producers),
            f"a record fails with {error.__name__}",
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._cluster.admin.delete_topic(topic)
        self.deleted.add(topic)

    def _await_each(self, count: Callable[[Account], int], more: int, what: str) -> None:
        accounts = [self._account(writer) for writer in self.producers]
        targets = {account: count(account) + more for account in accounts}
        self.await_that(
            lambda: all(count(account) >= target for account, target in targets.items()),
            f"each producer has {what} {more} more records",
        )

    def await_that(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something, while no producer fails."""

        def holds() -> bool:
            self._look_after_producers()
            return condition()

        wait_until(holds, what)

    def _look_after_producers(self) -> None:
        for producer in self.producers.values():
            with suppress(TimeoutError):  # it has nothing to say as long as it works
                producer.hear(0)

    def _account(self, writer: int) -> Account:
        """Return a writer's account, once it is there."""

        def is_there() -> bool:
            with suppress(FileNotFoundError):
                self._accounts[writer] = Account(self._directory, writer)
            return writer in self._accounts

        if writer not in self._accounts:
            self.await_that(is_there, f"writer {writer} has an account")
        return self._accounts[writer]

    def _heard(self, account: Account) -> int:
        return int(np.count_nonzero(account.outcomes() != NOT_HEARD))

    # --- the slab and its sender --------------------------------------------------------------------

    def await_retries(self) -> None:
        """Wait until the sender has retried a further batch."""

        def retried() -> int:
            with look(self._name) as view:
                return figures(view)["batches_retried"]

        before = retried()
        self.await_that(lambda: retried() > before, "another batch sent again")

    def await_said(self, text: str) -> None:
        """Wait until the sender has logged something."""
        self.await_that(
            lambda: self._sender_log.exists() and text in self._sender_log.read_text(), f"the sender says {text!r}"
        )

    def kill_sender(self) -> None:
        """Kill the sender, and wait for another one."""
        victim = self._await_sender(0)
        with suppress(ProcessLookupError):  # it has just left
            os.kill(victim, signal.SIGKILL)
        self._await_sender(victim)

    def _await_sender(self, other_than: int) -> int:
        """Return the pid of the slab's sender, once there is one, and not the given one."""
        found = 0

        def is_there() -> bool:
            nonlocal found
            found = sender_pid(self._name)
            return found not in (0, other_than)

        self.await_that(is_there, "there is a sender")
        return found

    # --- the end ------------------------------------------------------------------------------------

    def all_arrive(self) -> None:
        """Finish, after some more records: every record was acknowledged, and is in the log."""
        self.await_heard()
        row = self.finish()
        assert row.all_arrived(), row

    def finish(self) -> Row:
        """Let the producers hear of all their records and end; return what came of these."""
        self._end_producers()
        return self._row(self.topics)

    def finish_by_topic(self) -> list[Row]:
        """Do as `finish`; return what came of the records of each topic."""
        self._end_producers()
        return [self._row([topic]) for topic in self.topics]

    def _end_producers(self) -> None:
        for producer in self.producers.values():
            producer.tell("stop")
        for producer in self.producers.values():
            producer.result(2 * PATIENCE_S)
        wait_until_gone(self._name)

    def _row(self, topics: Sequence[str]) -> Row:
        """Compare what producers of these topics know with what is in the log."""
        of_topics = [account for account in self._closed_accounts() if topic_of(account.writer, self.topics) in topics]
        stored = [record for topic in topics if topic not in self.deleted for record in self._stored(topic)]
        verdict = judge(of_topics, stored, PARTITIONS, self.topics)
        return Row(sum(account.begun for account in of_topics), verdict)

    def count(self, is_counted: Callable[[int, int], bool]) -> int:
        """Return how many records were sent of which this is true, by writer and number."""
        return sum(
            is_counted(account.writer, number) for account in self._closed_accounts() for number in range(account.begun)
        )

    def _closed_accounts(self) -> list[Account]:
        """Return the accounts of all writers, of whom nothing more comes."""
        return [self._account(writer) for writer in range(1, self._writers + 1)]

    def _stored(self, topic: str) -> Iterator[Stored]:
        found = consume({"bootstrap.servers": self._cluster.internal_servers}, topic)
        for partition, records in found.items():
            for record in records:
                yield Stored(topic, partition, record.offset(), record.key(), record.value())

    def abandon(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        for producer in self.producers.values():
            producer.kill()
        for account in self._accounts.values():
            account.close()
        self._accounts.clear()
        if pid := sender_pid(self._name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        unlink(self._name)


MakeTrial = Callable[..., Trial]
"""The fixture ``trial``."""
