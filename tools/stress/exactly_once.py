"""``python -m tools.stress --exactly-once``: kill drivers, tasks and senders at every step, and count what is visible.

This plays Spark's part without Spark: micro-batches of tasks, written and committed by the data source's own code
(`shmaccum.spark.exactly_once`), into an Apache Kafka of its own. In most runs something dies:

* the driver's process that plans, or the one that commits, at a line of the transactions' code drawn by lot. The next
  one plans again, as after a restart of the query;
* a worker, at such a line of a task: another one takes the task;
* the sender, at any time;
* a worker is stopped in a task, which another one takes; it goes on when a later batch is under way,
  or when the error of an attach that it holds up asks for that;
* a task is given to two workers; the result that comes first counts.

A run is one micro-batch, however many attempts it takes. In the end, a ``read_committed`` consumer must see each record
of each task once, and no transaction may be open.

The processes are forks of this one. What each has done is in the report, by lot of ``--seed``; the timing is not.

With ``--spark``, it is Spark itself that plans, writes and commits (`tools.stress.once_spark`).
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.kafka import KafkaCluster, ensure_kafka
from tools.stress.lots import Death
from tools.stress.options import add_run
from tools.support.arguments import add_numbers, command_line, set_numbers
from tools.support.slabcheck import sender_pid

if TYPE_CHECKING:
    from shmaccum.spark.exactly_once import ExactlyOnce

with Path(__file__).with_name("exactly_once.toml").open("rb") as _file:
    _NUMBERS: Final = tomllib.load(_file)
_EPILOG: Final = """\
With --spark, a real Structured Streaming query writes them, in a driver of its own, which starts again on its
checkpoint after each death (tools/stress/once_spark.py). Spark speculates only with local-cluster.

examples:
  python -m tools.stress --exactly-once --runs 400 --transaction-version 1
  python -m tools.stress --exactly-once --spark local --runs 100
  python -m tools.stress --exactly-once --spark local-cluster --runs 100 --kill-executor 0.1
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    about = "Kill drivers, tasks and senders of a write that is exactly once, and count what is visible."
    parser = command_line("stress --exactly-once", about, _EPILOG)
    parser.add_argument("--spark", choices=("local", "local-cluster"), help="real Spark, with this master")
    add_numbers(parser, _NUMBERS)
    version = "the brokers' [%(default)s]"
    parser.add_argument("--transaction-version", metavar="V", type=int, choices=(1, 2), default=2, help=version)
    add_run(parser)
    options = parser.parse_args(arguments)
    kind = f"--spark {options.spark}" if options.spark else "runs without --spark"
    set_numbers(parser, options, _NUMBERS, kind)
    return options


# --- what runs with and without Spark share ----------------------------------------------------------------

TOPIC: Final = "exactly-once"
_PARTITIONS: Final = 6


@contextmanager
def broker(transaction_version: int) -> Iterator[tuple[KafkaCluster, Path]]:
    """Start an Apache Kafka with the topic; yield it and a directory, which both go in the end."""
    ensure_kafka()
    directory = Path(tempfile.mkdtemp(prefix="shmaccum-stress-"))
    try:
        with KafkaCluster(directory / "kafka", features={"transaction.version": transaction_version}) as cluster:
            cluster.admin.create_topic(TOPIC, partitions=_PARTITIONS)
            yield cluster, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_options(servers: str, name: str) -> dict[str, str]:
    """Return the data source's options. The name is the slab's, and begins all transactional ids, too."""
    return {
        "exactlyOnce": "true",
        "kafka.transactional.id": name,
        "kafka.bootstrap.servers": servers,
        "kafka.shmaccum.name": name,
        "kafka.buffer.memory": str(2 << 20),
        "kafka.sender.idle.ms": "2000",
    }


def check(servers: str, transactional_id: str, expected: Set[bytes]) -> list[str]:
    """Return what is wrong with what a ``read_committed`` consumer sees, and with what is left open.

    The id begins all transactional ids. Each of the values must be there once.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    from shmaccum.config import ProducerConfig
    from shmaccum.transactions.administration import Transactions
    from shmaccum.transactions.broker_client import BrokerClient
    from shmaccum.transactions.coordinator import deadline_after

    wrong = []
    config = ProducerConfig.parse({"bootstrap.servers": servers})
    with BrokerClient(config) as client:
        transactions = Transactions(client, config)
        deadline = time.monotonic() + 60
        while transactions.find(transactional_id, ("PrepareCommit", "PrepareAbort"), deadline_after(30_000)):
            if time.monotonic() > deadline:
                return ["transactions have not ended within a minute"]
            time.sleep(0.1)
        left = transactions.find(transactional_id, ("Ongoing",), deadline_after(30_000))
        wrong += [f"transactional.id {each.transactional_id} is open" for each in left]
    of_consumer = {"bootstrap.servers": servers, "group.id": "check", "auto.offset.reset": "earliest"}
    consumer = Consumer(of_consumer | {"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(_PARTITIONS)])
    seen: Counter[bytes] = Counter()
    unfinished = _PARTITIONS
    while unfinished:
        message = consumer.poll(30)
        if message is None:
            return [*wrong, f"{unfinished} partitions cannot be read to their end"]
        if message.error() is None:
            seen[message.value() or b""] += 1
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unfinished -= 1
    consumer.close()
    twice = {value for value, count in seen.items() if count > 1}
    wrong_sets = {"missing": expected - seen.keys(), "there twice": twice, "never written": seen.keys() - expected}
    for what, values in wrong_sets.items():
        if values:
            wrong.append(f"{len(values):,} records are {what}, such as {min(values)!r}")
    print(f"  {sum(seen.values()):,} records are visible, of {len(expected):,}")
    return wrong


def report(
    options: argparse.Namespace, counts: Mapping[str, int], errors: Mapping[str, int], wrong: list[str], began_s: float
) -> int:
    """Print the result, and write it as JSON if the options say so; return the exit status.

    The counts are of what was done, and of errors on the way; what is wrong has a line for each violation.
    """
    for what, count in [*sorted(counts.items()), *sorted(errors.items())]:
        print(f"  {count:8,} {what}")
    print(f"  seed {options.seed}, {time.monotonic() - began_s:.0f} s")
    for each in wrong:
        print(f"  WRONG: {each}")
    if options.json is not None:
        content = {"held": not wrong, "problems": wrong, "counts": counts, "errors": errors, "seed": options.seed}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 1 if wrong else 0


# --- without Spark -----------------------------------------------------------------------------------------

_LINES_OF_A_PLAN: Final = 3000
_LINES_OF_A_COMMIT: Final = 4000
_LINES_OF_A_TASK: Final = 700
"""About the number of lines that run there, also where brokers answer late. A process dies at one of them."""
_ROWS: Final = 60
"""Records of a task."""
_TASK_S: Final = 120.0
"""How long a task may take before this is an error of the run."""
_ATTEMPTS: Final = 30
"""Most attempts of a micro-batch: only what dies by lot makes more than one."""


@dataclass(frozen=True)
class Job:
    """What every process needs: the options of the data source."""

    options: Mapping[str, str]

    def plan(self) -> Any:
        """Do what Spark's planning process does; return the tasks' part."""
        return self._exactly_once().plan()

    def commit(self, batch: int, results: Sequence[Any]) -> None:
        self._exactly_once().commit(batch, results)

    def write(self, plan: Any, batch: int, task: int) -> Any:
        """Do what a task does; return its result."""
        import pyarrow as pa

        values = [b"%d %d %d" % (batch, task, row) for row in range(_ROWS)]
        parts = [pa.array(values[at : at + 20], pa.binary()) for at in range(0, _ROWS, 20)]
        batches = [pa.record_batch({"value": part}) for part in parts]
        return plan.write(batches, self._exactly_once().config, TOPIC, {"value": "binary"})[2]

    def _exactly_once(self) -> ExactlyOnce:
        from shmaccum.spark.exactly_once import ExactlyOnce

        made = ExactlyOnce.of({name.lower(): value for name, value in self.options.items()}, is_stream=True)
        assert made is not None
        return made


def last_plan(job: Job) -> list[str]:
    """Plan again, without a death, as the next start of the query does: it ends what the last batch has left."""
    try:
        job.plan()
    except Exception as error:
        return [f"the last plan failed: {error}"]
    return []


_FORKING: Final = multiprocessing.get_context("fork")


class Worker:
    """A process that writes tasks, as Spark's Python worker: it keeps its producer."""

    def __init__(self, job: Job) -> None:
        self.pipe, self.process = _fork(_work, job)
        self.task: int | None = None
        """The task that it is at."""
        self.is_zombie = False
        """Whether its task was given to another one."""

    def signal(self, number: int) -> None:
        assert self.process.pid
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Run:
    """All micro-batches."""

    def __init__(self, job: Job, options: argparse.Namespace) -> None:
        self._job = job
        self._options = options
        self._name = job.options["kafka.shmaccum.name"]
        self._lots = random.Random(options.seed)
        self._workers: list[Worker] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def all(self) -> None:
        try:
            for batch in range(self._options.runs):
                self._batch(batch)
                if batch % 50 == 49:
                    print(f"{batch + 1:,} of {self._options.runs:,} micro-batches", file=sys.stderr, flush=True)
        finally:
            for worker in self._workers:
                worker.end()

    def _batch(self, batch: int) -> None:
        for _ in range(_ATTEMPTS):
            plan = self._driver("plan", self._job.plan, _LINES_OF_A_PLAN)
            if plan is None:
                continue
            for worker in self._workers:
                if worker.is_zombie and self._by_lot(0.5):
                    worker.signal(signal.SIGCONT)
            if plan.plan.decided is not None and plan.plan.decided >= batch:
                self.counts["decided before the driver died"] += 1
                return
            results = self._tasks(plan, batch)
            if self._driver("commit", partial(self._job.commit, batch, results), _LINES_OF_A_COMMIT):
                self.counts["micro-batches"] += 1
                return
        raise RuntimeError(f"micro-batch {batch} did not succeed in {_ATTEMPTS} attempts: {dict(self.errors)}")

    def _driver(self, what: str, call: Callable[[], Any], lines: int) -> Any:
        """Run a process of the driver; return what it came to (True for None), or None if it died or failed."""
        die_at = self._lots.randrange(1, lines) if self._by_lot(self._options.kill_driver) else 0
        ours, process = _fork(_answer, call, die_at)
        try:
            kind, value = ours.recv()
        except EOFError:
            self.counts[f"drivers killed in a {what}"] += 1
            return None
        finally:
            process.join()
            ours.close()
        if kind == "failed":
            self.errors[f"{what}: {value}"] += 1
            return None
        return True if value is None else value

    def _tasks(self, plan: Any, batch: int) -> list[Any]:
        """Write all tasks; return their results."""
        results: dict[int, Any] = {}
        deadline = time.monotonic() + _TASK_S
        while len(results) < self._options.tasks:
            if time.monotonic() > deadline:
                for worker in self._workers:  # each prints where it is
                    state = "stopped" if worker.is_zombie else "running"
                    print(f"{worker.process}, task {worker.task}, {state}:", file=sys.stderr, flush=True)
                    worker.signal(signal.SIGUSR1)
                    time.sleep(0.5)
                missing = sorted(set(range(self._options.tasks)) - results.keys())
                raise RuntimeError(f"micro-batch {batch}: tasks {missing} are not written: {dict(self.errors)}")
            self._give_out(plan, batch, results)
            if self._by_lot(self._options.kill_sender) and (sender := sender_pid(self._name)):
                with suppress(ProcessLookupError):
                    os.kill(sender, signal.SIGKILL)
                    self.counts["senders killed"] += 1
            busy = [worker for worker in self._workers if worker.task is not None]
            for pipe in wait([worker.pipe for worker in busy], 0.2):
                worker = next(each for each in busy if each.pipe is pipe)
                self._hear(worker, results, plan, batch)
        for worker in self._workers:
            if worker.task is not None:
                worker.is_zombie = True
        return [results[task] for task in sorted(results)]

    def _give_out(self, plan: Any, batch: int, results: Mapping[int, Any]) -> None:
        """Give tasks that no one is at to idle workers; some to two. A stopped worker's task is given to another."""
        at_work = [worker for worker in self._workers if not worker.is_zombie]
        self._workers += [Worker(self._job) for _ in range(self._options.workers - len(at_work))]
        idle = [worker for worker in self._workers if worker.task is None]
        held = {worker.task for worker in at_work}
        for task in range(self._options.tasks):
            if idle and task not in results and task not in held:
                self._give(idle.pop(), plan, batch, task)
                if idle and self._by_lot(0.1):
                    self.counts["tasks given to two workers"] += 1
                    self._give(idle.pop(), plan, batch, task)

    def _give(self, worker: Worker, plan: Any, batch: int, task: int) -> None:
        dies = self._by_lot(self._options.kill_worker)
        worker.pipe.send((plan, batch, task, self._lots.randrange(1, _LINES_OF_A_TASK) if dies else 0))
        worker.task = task
        if not dies and self._by_lot(self._options.stop_worker):
            time.sleep(self._lots.random() * 0.05)
            worker.signal(signal.SIGSTOP)
            worker.is_zombie = True
            self.counts["workers stopped in a task"] += 1

    def _hear(self, worker: Worker, results: dict[int, Any], plan: Any, batch: int) -> None:
        try:
            kind, of_batch, task, value = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._workers.remove(worker)
            worker.end()
            self.counts["workers killed"] += 1
            return
        if kind == "failed":
            self.errors[f"task: {value}"] += 1
            if value.startswith("LockTimeoutError"):  # it says what to do: continue who was stopped in an attach
                for stopped in self._workers:
                    stopped.signal(signal.SIGCONT)
        elif of_batch == batch and value.plan == plan.plan:  # Spark ignores what comes from an earlier attempt, too
            results.setdefault(task, value)
        worker.signal(signal.SIGCONT)  # it can have been stopped after it had sent this
        worker.task, worker.is_zombie = None, False

    def _by_lot(self, probability: float) -> bool:
        return self._lots.random() < probability


def _fork(target: Callable[..., None], *args: Any) -> tuple[Connection, ForkProcess]:
    """Run a function in a forked process, with one end of a pipe; return the other end, and the process."""
    ours, theirs = _FORKING.Pipe()
    process = _FORKING.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(pipe: Connection, job: Job) -> None:
    faulthandler.register(signal.SIGUSR1)
    while True:
        try:
            plan, batch, task, die_at = pipe.recv()
        except EOFError:
            return
        try:
            with Death(die_at):
                pipe.send(("done", batch, task, job.write(plan, batch, task)))
        except Exception as error:
            pipe.send(("failed", batch, task, _shown(error)))


def _answer(pipe: Connection, call: Callable[[], Any], die_at: int) -> None:
    try:
        with Death(die_at):
            pipe.send(("done", call()))
    except Exception as error:
        pipe.send(("failed", _shown(error)))


def _shown(error: Exception) -> str:
    """Return an error without what differs each time, to count it."""
    text = "".join("#" if each.isdigit() else each for each in str(error))
    return f"{type(error).__name__}: {text[:160]}"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.spark is not None:
        from tools.stress import once_spark

        return once_spark.main(options)
    with broker(options.transaction_version) as (cluster, _):
        began = time.monotonic()
        name = f"stress-once-{os.getpid()}"
        job = Job(write_options(cluster.bootstrap_servers, name) | {"checkpointlocation": name})
        run = Run(job, options)
        wrong = []
        try:
            run.all()
        except RuntimeError as error:
            wrong.append(str(error))
        wrong += last_plan(job)
        places = itertools.product(range(options.runs), range(options.tasks), range(_ROWS))
        wrong += check(cluster.bootstrap_servers, name, {b"%d %d %d" % place for place in places})
    return report(options, run.counts, run.errors, wrong, began)
