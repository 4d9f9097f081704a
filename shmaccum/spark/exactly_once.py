"""Exactly once: every task writes a transaction, and the driver decides which of them count.

Spark plans each batch in a process on the driver, before its tasks, and commits it in another one. What they share are
the commit log (`shmaccum.transactions.batch_committer`) and the tasks' results. A task that is retried, or run twice,
writes a transaction in each attempt, of which one counts.

An attempt takes its transactional id from its own process, which uses each id once under a plan. So no attempt waits
for another one, or fences it; and none can hurt a transaction that is decided but not yet committed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.errors import ConfigError, IllegalStateError, ProducerFencedError, ShmaccumError
from shmaccum.procfs import ancestors
from shmaccum.spark.options import PREFIX, producer_config, with_options_named

if TYPE_CHECKING:
    import pyarrow as pa

    from shmaccum.transactions.batch_committer import BatchCommitter, Plan
    from shmaccum.transactions.coordinator import PreparedTransaction
    from shmaccum.transactions.manager import TransactionManager
    from shmaccum.transactions.writer_id import Writer
    from shmaccum.transactions.writer_state import Driver

logger = logging.getLogger(__name__)

_DEFAULTS: Final = {"transactional.id": "shmaccum-spark", "transaction.timeout.ms": "900000"}
"""Fifteen minutes: the most that brokers allow by default. A transaction is open until its whole batch is decided."""
_ABORT_S: Final = 10.0
"""How long a failed attempt tries to abort its transaction; the next plan aborts it otherwise."""
_FOUND_AT_ONCE: Final = 8
"""Transactional ids whose coordinators are found by one request: a process runs one task after another."""
_LOCATION: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?(?://(?=/|$)|(//[^/]+))?(.*)", re.DOTALL)
"""Scheme, authority with its slashes unless that is empty, and path of a checkpoint."""


@dataclass(frozen=True)
class ExactlyOnce:
    """The exactly-once part of a write, as the options give it."""

    config: ProducerConfig
    is_job: bool
    """Whether it is a batch job, not a streaming query."""
    name: str
    """Of the writer: the query's checkpoint, or what the option ``txnAppId`` says."""
    version: int | None
    """Of a batch job that writes nothing if it, or a later one, was written; None for a query, and for other jobs."""
    fail_on_data_loss: bool
    log: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool) -> ExactlyOnce | None:
        """Return the options of ``exactlyOnce``; None without it.

        Raises ConfigError: an option is wrong, or missing.
        """
        # An empty name is none, as of an unset variable: a job of it would be a new one in every run.
        app = options.get("txnappid") or None
        version, log = options.get("txnversion"), options.get("commitlogtopic")
        if not _boolean(options, "exactlyonce", "exactlyOnce"):
            for name, value in {"txnAppId": app, "txnVersion": version, "commitLogTopic": log}.items():
                if value is not None:
                    raise ConfigError(f"option {name} needs exactlyOnce=true")
            if f"{PREFIX}transactional.id" in options:
                raise ConfigError(f"option {PREFIX}transactional.id needs exactlyOnce=true; it begins all ids then")
            return None
        if is_stream:
            if version is not None:
                raise ConfigError("option txnVersion is for batch jobs: a streaming query numbers its batches itself")
            app = app or checkpoint_name(options.get("checkpointlocation", ""))
            if not app:
                raise ConfigError("exactlyOnce of a streaming query needs the option checkpointLocation, or txnAppId")
        elif (app is None) != (version is None):
            raise ConfigError("options txnAppId and txnVersion go together: the job's name, and the number of its run")
        if version is not None and not version.strip().isdecimal():
            raise ConfigError(f"option txnVersion = {version!r} is not an integer from 0 on")
        return cls(
            producer_config({f"{PREFIX}{name}": value for name, value in _DEFAULTS.items()} | dict(options)),
            not is_stream,
            app or f"job {uuid.uuid4()}",
            None if version is None else int(version),
            _boolean(options, "failondataloss", "failOnDataLoss", default=True),
            None if log is None else check_topic(log.strip()),
        )

    def writer(self) -> Writer:
        """Return the writer for the commit log, in a process of the driver."""
        from shmaccum.transactions.commit_log import TOPIC
        from shmaccum.transactions.writer_id import Writer

        digest = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        return Writer(
            self.name,
            f"{self.config.transactional_id}-{digest}-",
            self.log or TOPIC,
            fail_on_data_loss=self.fail_on_data_loss,
            writes_once=self.is_job and self.version is None,
            driver=None if self.is_job else _driver(),
        )

    def plan(self) -> TaskPlan:
        """Plan a batch, on the driver (`BatchCommitter.plan`); it is ended if the driver ends amid it."""
        from shmaccum.transactions.driver_watch import end_batch_after

        writer = self.writer()
        with self._committer() as committer:
            plan = committer.plan()
        end_batch_after(writer.driver or _driver(), self.config, writer, plan if self.is_job else None)
        return TaskPlan(plan, writer, self.version)

    def ended(self) -> None:
        """Note that a job has ended, on the driver: nothing of it is left to be done."""
        from shmaccum.transactions.driver_watch import forget

        forget(_driver(), self.writer())

    def commit(self, batch: int, results: Sequence[TransactionResult]) -> None:
        """Commit a batch, on the driver (`BatchCommitter.commit`).

        Raises IllegalStateError: results are of different plans; nothing is committed.
        """
        written = [result for result in results if result.transaction is not None]
        if written:
            plans = sorted({result.plan.number for result in written})
            if len(plans) > 1:  # the transactions of all but the last are aborted
                raise IllegalStateError(f"batch {batch} has results of tasks of different plans: {plans}")
            transactions = [result.transaction for result in written if result.transaction is not None]
            with self._committer() as committer:
                committer.commit(written[0].plan, batch, written[0].source, transactions)

    def end_batch(self, plan: Plan | None) -> None:
        """End a failed batch, on the driver (`BatchCommitter.end_batch`)."""
        with self._committer() as committer:
            committer.end_batch(plan)

    @contextmanager
    def _committer(self) -> Iterator[BatchCommitter]:
        """Yield a committer with its own connections. Its errors name settings as options."""
        from shmaccum.transactions.batch_committer import BatchCommitter
        from shmaccum.transactions.broker_client import BrokerClient

        try:
            with BrokerClient(self.config) as client:
                yield BatchCommitter(client, self.config, self.writer())
        except ShmaccumError as error:
            raise with_options_named(error) from error.__cause__


@dataclass(frozen=True)
class TransactionResult:
    """The exactly-once part of a task's result."""

    plan: Plan
    source: str
    """Id of the streaming query; empty for a job."""
    transaction: PreparedTransaction | None
    """None if the task wrote nothing."""


@dataclass(frozen=True)
class TaskPlan:
    """What all tasks of a batch of a query or job need to know; ``version`` is a job's."""

    plan: Plan
    writer: Writer
    version: int | None

    def is_decided(self, source: str) -> bool:
        """Return whether the task's batch, of a query or a job, was committed before, and must not be written again.

        Raises IllegalStateError: the query's batches have begun again, so their numbers say nothing.
        """
        decided = self.plan.decided
        batch = self.version if not source else _batch_number()
        if decided is None or batch is None:
            return False
        if source != self.plan.source:
            raise IllegalStateError(
                f"batch {batch} of {_origin(source)} could be one of {_origin(self.plan.source)}, which wrote up to "
                f"batch {decided} with the same checkpointLocation or txnAppId: was the checkpoint deleted, or do two "
                "queries or jobs have the same one? Take another checkpointLocation, or txnAppId, to write all from "
                "the beginning"
            )
        return batch <= decided

    def write(
        self, batches: Iterable[pa.RecordBatch], config: ProducerConfig, topic: str | None, columns: Mapping[str, str]
    ) -> tuple[int, int, TransactionResult]:
        """Send the rows of one task in a transaction, and leave that open for the driver.

        Returns:
            The number of rows, the bytes of their keys and values, and the result for the driver.
        """
        from shmaccum.spark.delivery import deliver
        from shmaccum.spark.worker import producer

        # In foreachBatch, the tasks of a job have the local properties of the query, whose batches are not its runs.
        source = _query_id() if self.version is None else ""
        if self.is_decided(source):
            return 0, 0, TransactionResult(self.plan, source, None)
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:  # no transaction: Kafka refuses to end one in which nothing was sent
            return 0, 0, TransactionResult(self.plan, source, None)
        sending = producer(config)
        try:
            transactions = sending.transactions
            with _ids.next(self.writer.prefix, self.plan.number) as (transactional_id, following):
                transactions.init(transactional_id, following)
            transactions.begin()
            # Spark does not tell a task that its job has failed, or that another attempt was faster. The driver aborts
            # what is open when it decides. What opens later is aborted here: as soon as it is open, since Spark kills
            # tasks some seconds after a stop; and in the end, if the transaction can open twice.
            check = partial(self._check, transactions, config)
            records, size = deliver(chain([first], rows), sending, topic, columns, check)
            if not transactions.opens_once:
                check()
            transaction = transactions.prepare()._replace(records=records)
        except BaseException:
            sending.close(_ABORT_S)  # aborts; the next attempt in this process takes a new producer
            raise
        return records, size, TransactionResult(self.plan, source, transaction)

    def _check(self, transactions: TransactionManager, config: ProducerConfig) -> None:
        """Raise if the plan is over. Raises ProducerFencedError: it is."""
        if transactions.holder_of(self.plan.transactional_id) != self.plan.identity:
            raise ProducerFencedError(f"{self._why_over(config)}. What this attempt wrote is aborted")

    def _why_over(self, config: ProducerConfig) -> str:
        from shmaccum.transactions.batch_committer import BatchCommitter
        from shmaccum.transactions.broker_client import BrokerClient

        with BrokerClient(config) as client:
            successor = BatchCommitter(client, config, self.writer).successor(self.plan)
        return successor or (
            f"plan {self.plan.number} is over: its batch was decided or has failed, or the driver has made another plan"
        )


class _TransactionalIds:
    """The ids of this process: each is used once under a plan, and again only under a later one."""

    def __init__(self) -> None:
        self._renew()

    @contextmanager
    def next(self, prefix: str, plan: int) -> Iterator[tuple[str, list[str]]]:
        """Yield the next id, for InitProducerId, and those that follow it.

        Raises ProducerFencedError: this process has worked under a later plan already.
        """
        if self._pid != os.getpid():  # forked: our ids are the parent's
            self._renew()
        last, used = self._used.get(prefix, (plan, 0))
        if plan < last:
            raise ProducerFencedError(f"plan {plan} is over: the driver has made plan {last} since")
        used = used if plan == last else 0
        self._used[prefix] = plan, used + 1
        try:
            first, *following = (f"{prefix}{self._token}-{used + number}" for number in range(_FOUND_AT_ONCE))
            yield first, following
        except BaseException:
            # The request may be still under way, and would abort a later transaction of the id when it arrives.
            self._renew()
            raise

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._token = uuid.uuid4().hex[:12]
        self._used: dict[str, tuple[int, int]] = {}
        """Prefix -> the last plan, and how many ids it has used."""


_ids: Final = _TransactionalIds()


def checkpoint_name(location: str) -> str:
    """Return one name for all spellings that Hadoop's ``Path`` takes for one: ``/a/``, ``file:///a``.

    A query that starts again as ``/checkpoints/a/`` would otherwise be a new one, and store a repeated batch twice. A
    scheme stays: whether ``/a`` is ``file:/a`` depends on the cluster's settings.
    """
    scheme, authority, path = _LOCATION.fullmatch(location).groups("")  # type: ignore[union-attr]
    path = re.sub("/+", "/", path)
    return scheme + authority + (path.rstrip("/") or path)


def _driver() -> Driver:
    """Return the application's JVM, of which this process is a descendant; or the parent."""
    from shmaccum.transactions.writer_state import Driver

    with suppress(OSError):
        for pid in ancestors():
            if Path(f"/proc/{pid}/comm").read_bytes().strip() == b"java":
                return Driver.of(pid)
    return Driver.of(os.getppid())


def _query_id() -> str:
    """Return the id of the streaming query that this task belongs to, or an empty text."""
    context = TaskContext.get()
    return (context.getLocalProperty("sql.streaming.queryId") if context is not None else None) or ""


def _batch_number() -> int | None:
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return None if number is None else int(number)


def _origin(source: str) -> str:
    return f"query {source!r}" if source else "a batch job"


def _boolean(options: Mapping[str, str], name: str, shown: str, *, default: bool = False) -> bool:
    value = options.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {shown} = {options[name]!r} is not true or false")
    return value == "true"
