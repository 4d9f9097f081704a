"""The sender's process: one a slab, there when needed, gone when not, whichever process is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from faults import stopped_with
from processes import Child, Start, finish
from producers import (
    Settings,
    in_the_way,
    kill_sender,
    sender_pid,
    sender_starts,
    stop_sender,
    wait_until,
    wait_until_gone,
    wait_until_stored,
)
from senders import read_partition, read_topic, read_values

from shmaccum import Producer, ProducerConfig
from shmaccum._core import Slot, Super
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.cluster import TopicPartition
from shmaccum.errors import DeliveryTimeoutError, KafkaStorageError, KafkaTimeoutError, SenderError, SenderExistsError
from shmaccum.sender import process
from shmaccum.sender.log.log_transport import LogTransport
from shmaccum.sender.process import ensure_sender, serve
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import detach
from shmaccum.shm.names import leftovers, segment_path
from shmaccum.shm.slab import Slab
from tools.support.accumulators import Accumulators


def serve_here(link: Connection, settings: dict[str, object]) -> str:
    """Be the sender in the foreground, as ``shmaccum sender`` is."""
    try:
        serve(ProducerConfig.parse(settings), lambda slab: link.send("serving"))
    except SenderExistsError as error:
        return f"SenderExistsError: {error}"
    return "left"


@contextlib.contextmanager
def somebody_there(settings: dict[str, object]) -> Iterator[Slab]:
    """Have a producer's place in the slab, without being one: no sender leaves during the block because it is idle."""
    config = ProducerConfig.parse(settings)
    slab = attach_for(config)
    try:
        slab.add_role(Role.PRODUCER)
        yield slab
    finally:
        detach(slab)


# --- one, when needed -----------------------------------------------------------------------------------


def test_one_sender_a_slab(settings: Settings, start: Start) -> None:
    with Producer(settings()) as one, Producer(settings(max_block_ms=19_000)) as two:
        pid = sender_pid(one)
        assert pid not in (0, os.getpid())
        assert sender_pid(two) == pid
        answer = start(serve_here, settings()).result()
        assert answer.startswith("SenderExistsError")
        assert f"process {pid}" in answer
        assert sender_starts(one) == 1


def produce_first(link: Connection, settings: dict[str, object]) -> tuple[int, int]:
    link.recv()
    with Producer(settings) as producer:
        producer.send("t", b"value", partition=0).get(20)
        found = sender_pid(producer), sender_starts(producer)
        link.send("there")
        link.recv()
        return found


def test_many_first_producers(settings: Settings, start: Start) -> None:
    """However many come at once to a slab that is not there, they make one, and one sender."""
    producers = [start(produce_first, settings()) for _ in range(4)]
    for producer in producers:
        producer.tell("begin")
    assert {producer.hear() for producer in producers} == {"there"}
    ((_, starts),) = set(finish(*producers))
    assert starts == 1


def start_sender_and_die(link: Connection, settings: dict[str, object]) -> None:
    """Be killed as soon as the sender has all that it needs to start."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_answer_of", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        Producer(settings)


def test_sender_survives_its_starter(settings: Settings, start: Start) -> None:
    """A sender serves even if its starter died before the answer."""
    with somebody_there(settings()) as slab:
        assert start(start_sender_and_die, settings()).join() == -signal.SIGKILL
        wait_until(slab.has_sender, "the dead one's sender is there")
        with Producer(settings()) as producer:
            producer.send("t", b"value").get(20)
            assert sender_starts(producer) == 1


MORTAL = """
import os, signal
if len(os.listdir({deaths!r})) < {count}:
    open(f"{deaths}/{{os.getpid()}}", "x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_while_it_starts(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts one that is killed over it starts another, but not for ever."""
    monkeypatch.setattr(process, "_BOOTSTRAP", MORTAL.format(deaths=str(tmp_path), count=3) + process._BOOTSTRAP)
    with pytest.raises(SenderError, match="attempts ended without an answer"):
        Producer(settings())
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("printed", [b"welcome\n", b"bienvenue \xe0 tous\n"])
def test_a_sitecustomize_that_prints_is_no_answer(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: bytes
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import os\nos.write(1, {printed!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Producer(settings()) as producer:
        assert sender_starts(producer) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "cp037"])
def test_it_starts_whatever_the_encoding_of_its_standard_streams(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    with Producer(settings()) as producer:
        assert sender_starts(producer) == 1


def linger(link: Connection) -> None:
    link.recv()


@pytest.mark.parametrize("deaths", [0, 1])
def test_a_child_forked_while_it_starts_keeps_nobody_waiting(
    settings: Settings, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """The child has the starter's ends of the pipes, for as long as it lives."""
    killed = tmp_path / "killed"
    killed.mkdir()
    monkeypatch.setattr(process, "_BOOTSTRAP", MORTAL.format(deaths=str(killed), count=deaths) + process._BOOTSTRAP)
    made: list[Producer] = []
    thread = threading.Thread(target=lambda: made.append(Producer(settings())))
    thread.start()
    children: list[Child] = []
    while thread.is_alive() and len(children) < 100:
        children.append(start(linger, how="fork"))
        time.sleep(0.001)
    thread.join(20)
    in_time = bool(made)
    finish(*children)
    thread.join()
    with made[0] as producer:
        assert in_time
        assert sender_starts(producer) == 1
    assert len(list(killed.iterdir())) == deaths


def standard_files(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]


def test_started_sender_is_detached(settings: Settings) -> None:
    """Its own session and name, no parent, the root directory, and none of the starter's files."""
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    with Producer(settings()) as producer:
        pid = sender_pid(producer)
        wait_until(lambda: producer._slab.words[Super.SENDER_ASLEEP], "the sender opens no more files")
        # It sleeps after its first pass, then answers its starter, then lets go of the pipes.
        wait_until(lambda: standard_files(pid) == ["/dev/null"] * 3)
        assert os.getsid(pid) != os.getsid(0)
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" not in status
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        open_files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        assert not [each for each in open_files if each.startswith("pipe:")]
        assert Path(f"/proc/{pid}/comm").read_text() == "shmaccum-sender\n"
        assert Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2] == settings()["shmaccum.name"]
        # Its settings are nowhere to be seen.
        for place in ("cmdline", "environ"):
            assert str(settings()["log.dir"]).encode() not in Path(f"/proc/{pid}/{place}").read_bytes()
    os.close(readable)
    os.close(writable)


@pytest.mark.parametrize("transport", ["log", "kafka"])
def test_it_has_one_thread_and_few_libraries(settings: Settings, transport: str) -> None:
    """Each of the others takes megabytes, and time of its start."""
    nowhere = {} if transport == "log" else {"bootstrap.servers": "127.0.0.1:1"}
    with Producer(settings(transport=transport) | nowhere) as producer:
        if transport == "log":
            producer.send("t", b"1").get(30)
        pid = sender_pid(producer)
        assert os.listdir(f"/proc/{pid}/task") == [str(pid)]
        mapped = Path(f"/proc/{pid}/maps").read_text()
        assert not [name for name in ("cramjam", "libcrypto", "libssl", "numpy") if name in mapped]


def test_secrets_are_nowhere_to_be_seen(settings: Settings, slab_name: str, tmp_path: Path) -> None:
    """Not in the arguments or the environment of the sender, in the slab, or in what the sender logs."""
    log = tmp_path / "sender.log"
    secrets = [b"the password", b"the key"]
    given = settings(
        sasl_password="the password",
        ssl_keystore_key="the key",
        ssl_keystore_certificate_chain="the key",
        sender_log_file=str(log),
    )
    with Producer(given) as producer:
        producer.send("t", b"value").get(10)
        (Path(str(given["log.dir"])) / "u-0").touch()  # something to complain of
        producer._destinations._max_block_s = 0.1
        with pytest.raises(KafkaTimeoutError):
            producer.send("u", b"value")
        pid = sender_pid(producer)
        places = [Path(f"/proc/{pid}/{place}").read_bytes() for place in ("cmdline", "environ")]
        places += [Path(segment_path(slab_name)).read_bytes(), log.read_bytes(), repr(producer.config).encode()]
        assert all(places)
        assert not [secret for place in places for secret in secrets if secret in place]


# --- leaving --------------------------------------------------------------------------------------------


def test_idle_sender_leaves(settings: Settings, slab_name: str) -> None:
    """It stays as long as a producer lives, and a while longer; then everything is removed."""
    with Producer(settings(sender_idle_ms=60_000)) as producer:
        pid = sender_pid(producer)
    with Producer(settings(sender_idle_ms=60_000)) as producer:
        assert sender_pid(producer) == pid
        assert sender_starts(producer) == 1
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not producer._slab.has_sender(), "it leaves on a signal")
    wait_until_gone(slab_name)
    with Producer(settings(sender_idle_ms=100)) as producer:
        pid = sender_pid(producer)
    wait_until_gone(slab_name)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the sender ends")


def test_signal_stops_after_delivery(settings: Settings, start: Start, log_dir: Path) -> None:
    """It delivers what is there, however long that was to linger, and leaves: so do SIGTERM and SIGHUP elsewhere."""
    given = settings(linger_ms=60_000, delivery_timeout_ms=100_000)
    with somebody_there(given):
        sender = start(serve_here, given).ready("serving")
        producer = Producer(given)
    with producer:
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(10)]
        sender.signal(signal.SIGINT)
        assert sender.result() == "left"
        producer.poll()
        assert all(future.succeeded() for future in futures)
        assert len(read_values(log_dir, "t")) == 10
        # Whoever needs one starts another.
        future = producer.send("t", b"later", partition=0)
        producer.flush(20)
        assert future.get(0).offset == 10
        assert sender_starts(producer) == 2


def test_records_of_dead_processes_are_delivered(settings: Settings, start: Start, log_dir: Path) -> None:
    """Producer and sender are dead: the slab keeps the records, and the next producer's sender finds them.

    They are older than delivery.timeout.ms, which applies to producers that still run.
    """
    given = settings(delivery_timeout_ms=30_000, request_timeout_ms=10_000)
    assert start(send_after_the_sender_s_death, given, 60_000).join() == -signal.SIGKILL
    assert read_values(log_dir, "t") == []
    with Producer(given) as producer:
        producer.partitions_for("t")
        wait_until_stored(log_dir, 20)
        assert producer.send("t", b"own", partition=0).get(20).offset == 20
        assert producer.metrics()["slab-metrics"]["record-lost-total"] == 0


def send_after_the_sender_s_death(link: Connection, settings: dict[str, object], ago_ms: int = 0) -> None:
    """Send records that no sender takes, and die; that was so long ago."""
    producer = Producer(settings)
    producer.partitions_for("t")
    stop_sender(producer)
    for number in range(20):
        producer.send("t", b"%d" % number, partition=0)
    kill_sender(producer)
    batch = producer._accumulator.state.map.queues[TopicPartition("t", 0)].first()
    assert batch is not None
    producer._slab.words[producer._slab.geometry.header(batch.slot) + Slot.CREATED_MS] -= ago_ms
    os.kill(os.getpid(), signal.SIGKILL)


def serve_and_be_late(link: Connection, settings: dict[str, object]) -> str:
    """Be a sender to which a record comes when it has already decided to leave."""
    config = ProducerConfig.parse(settings)
    close = LogTransport.close
    late: list[object] = []

    def append_and_close(transport: LogTransport) -> None:
        if not late:
            slab = attach_for(config)
            accumulator = Accumulators(slab, config)
            accumulator.map.request("t")
            accumulator.map.update("t", 3, None)
            late.append(accumulator.append(TopicPartition("t", 0), 0, None, b"late"))
            detach(slab)
        close(transport)

    pytest.MonkeyPatch().setattr(LogTransport, "close", append_and_close)
    return serve_here(link, settings)


def test_a_record_that_comes_while_it_leaves(settings: Settings, start: Start, log_dir: Path) -> None:
    """Its producer saw that there was a sender, and started none: it has to be this one."""
    sender = start(serve_and_be_late, settings(sender_idle_ms=0)).ready("serving")
    assert sender.hear() == "serving"
    assert sender.result() == "left"
    assert read_values(log_dir, "t") == [b"late"]


def voluntary_switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def assert_rest(wakes: dict[int, int]) -> None:
    """Check that processes wake at most so often in a second, and take at most a fifth of a processor."""
    began_s = time.monotonic()
    before = {pid: (voluntary_switches(pid), cpu_ticks(pid)) for pid in wakes}
    time.sleep(1)
    seconds = time.monotonic() - began_s  # more than it was to be, on a machine that is busy
    for pid, (switches, ticks) in before.items():
        assert voluntary_switches(pid) - switches <= wakes[pid] * seconds
        assert cpu_ticks(pid) - ticks <= 20 * seconds


def test_sender_and_producer_wait_without_polling(settings: Settings, start: Start) -> None:
    """A producer that waits takes a few looks a second, in case the sender has died."""
    waiter = start(wait_for_a_future, settings(linger_ms=60_000, delivery_timeout_ms=100_000))
    sender = waiter.hear()
    time.sleep(0.1)
    assert_rest({waiter.pid: 12, sender: 5})
    os.kill(sender, signal.SIGTERM)  # it delivers what lingers
    assert waiter.result() == 0


def wait_for_a_future(link: Connection, settings: dict[str, object]) -> int:
    with Producer(settings) as producer:
        future = producer.send("t", b"value", partition=0)
        link.send(sender_pid(producer))
        return future.get(60).offset


# --- killed, again and again ----------------------------------------------------------------------------


def send_until_told(link: Connection, settings: dict[str, object], child: int) -> int:
    """Send numbers to two partitions in turn; return how many, all of which are acknowledged."""
    with Producer(settings) as producer:
        producer.partitions_for("t")
        link.send("ready")
        futures: list[Any] = []
        while not link.poll():
            value = b"%d:%d" % (child, len(futures))
            futures.append(producer.send("t", value, partition=len(futures) % 2))
            if len(futures) % 50 == 0:
                time.sleep(0.005)
        producer.flush(60)
        assert all(future.succeeded() for future in futures)
        return len(futures)


def numbers_in(log_dir: Path) -> dict[tuple[int, int], list[int]]:
    """Return the numbers in the log, by partition and child, in order."""
    found: dict[tuple[int, int], list[int]] = {}
    for partition, records in read_topic(log_dir, "t").items():
        for record in records:
            assert record.value is not None
            child, number = map(int, record.value.split(b":"))
            found.setdefault((partition, child), []).append(number)
    return found


def test_killed_while_producers_go_on(settings: Settings, start: Start, log_dir: Path) -> None:
    """Over the deaths of many senders every record arrives, once and in order."""
    given = settings(buffer_memory=64 << 10, batch_size=2048, max_request_size=16 << 10)
    kills = 4
    with Producer(given) as watcher:
        producers = [start(send_until_told, given, child) for child in range(2)]
        for producer in producers:
            assert producer.hear() == "ready"
        words = watcher._slab.words
        for _ in range(kills):
            wait_until(watcher._slab.has_sender, "there is a sender")
            # More than a sender sends before it tells its starter that it serves: to one that is never told it is as if
            # no sender could be started.
            target = words[Super.BATCHES_SENT] + 40
            wait_until(lambda target=target: words[Super.BATCHES_SENT] >= target, "40 more batches have been sent")
            kill_sender(watcher)
        # Who has nothing left to deliver needs none: the producers go on until they have another one.
        wait_until(watcher._slab.has_sender, "there is a sender")
        for producer in producers:
            producer.tell()
        counts = [producer.result(60) for producer in producers]
        assert sender_starts(watcher) == kills + 1
    assert numbers_in(log_dir) == {
        (partition, child): list(range(partition, counts[child], 2)) for partition in range(2) for child in range(2)
    }


def serve_while_the_clock_is_set(link: Connection, settings: dict[str, object], jump_s: float) -> str:
    """Be the sender, with a time of day that the test sets."""
    set_the_clock(link, jump_s)
    return serve_here(link, settings)


def set_the_clock(link: Connection, jump_s: float) -> None:
    """Have the time of day jump with every look at it, as this process sees it."""
    looks = itertools.count()
    now, now_ns = time.time, time.time_ns
    patch = pytest.MonkeyPatch()
    patch.setattr(time, "time", lambda: now() + jump_s * next(looks))
    patch.setattr(time, "time_ns", lambda: now_ns() + int(jump_s * 1e9) * next(looks))


def send_while_the_clock_is_set(link: Connection, settings: dict[str, object], jump_s: float) -> list[int]:
    set_the_clock(link, jump_s)
    with Producer(settings) as producer:
        futures = [producer.send("t", b"value", partition=0, timestamp_ms=1) for _ in range(50)]
        producer.send("t", b"value", partition=1)
        producer.flush(20)
        return [future.get(0).offset for future in futures]


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_the_clock_is_set(settings: Settings, start: Start, jump_s: float) -> None:
    """Back or forward, by hours: nothing hangs, and nothing expires."""
    with somebody_there(settings()) as slab:
        sender = start(serve_while_the_clock_is_set, settings(), jump_s).ready("serving")
        assert start(send_while_the_clock_is_set, settings(), jump_s).result() == list(range(50))
        assert slab.words[Super.SENDER_STARTS] == 1
    assert sender.result() == "left"


# --- failures -------------------------------------------------------------------------------------------


def send_one(link: Connection, settings: dict[str, object], partition: int) -> str:
    """Send a record; on a slow machine partition 1's can expire, and is sent again."""
    with Producer(settings) as producer:
        producer.partitions_for("t")
        link.send("ready")
        link.recv()
        while True:
            future = producer.send("t", b"%d" % partition, partition=partition)
            try:
                return str(future.get(20).offset)
            except (KafkaStorageError, DeliveryTimeoutError) as error:
                if partition == 0:
                    return str(error)


def test_delivery_timeout_concerns_those_concerned(settings: Settings, start: Start, log_dir: Path) -> None:
    given = settings(delivery_timeout_ms=400, request_timeout_ms=100, retry_backoff_ms=20)
    producers = [start(send_one, given, partition) for partition in (0, 1)]
    for producer in producers:
        assert producer.hear() == "ready"
    with in_the_way(log_dir / "t-0"):
        for producer in producers:
            producer.tell()
        failed, stored = (producer.result() for producer in producers)
    assert failed.startswith("t-0: ")
    assert stored == "0"


def test_the_log_is_full(settings: Settings, log_dir: Path) -> None:
    """What is acknowledged is in the log; the rest gets the error, and nothing is torn."""
    given = settings(retries=5, retry_backoff_ms=20)  # and no timeout, in which a slow machine might store nothing
    with Producer(given) as producer:
        producer.partitions_for("t")
        resource.prlimit(sender_pid(producer), resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        futures = [producer.send("t", b"%d" % number + bytes(1000), partition=0) for number in range(200)]
        producer.flush(60)
        # A last, small batch can have room where larger ones before it had none, and were given up.
        stored = [number for number, future in enumerate(futures) if future.succeeded()]
        assert 0 < len(stored) < 200
        assert [futures[number].get(0).offset for number in stored] == list(range(len(stored)))
        errors = {type(future.exception()) for future in futures if future.failed()}
        assert errors == {KafkaStorageError}
        assert len(stored) + sum(future.failed() for future in futures) == 200
        values = [record.value for record in read_partition(log_dir, "t")]
        assert values == [b"%d" % number + bytes(1000) for number in stored]
        # There is room again.
        resource.prlimit(sender_pid(producer), resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert producer.send("t", b"more", partition=0).get(20).offset == len(stored)


def test_no_two_senders_are_started_at_once(settings: Settings) -> None:
    """Who finds another one starting a sender does not wait for it, and does not start a second."""
    config = ProducerConfig.parse(settings())
    with somebody_there(settings()) as slab:
        with slab.lock_file.try_start() as mine:
            assert mine
            ensure_sender(slab, config)
            assert not slab.has_sender()
        ensure_sender(slab, config)
        assert slab.has_sender()


def test_a_process_stopped_while_it_starts_a_sender_is_replaced(settings: Settings) -> None:
    config = ProducerConfig.parse(settings())
    with somebody_there(settings()) as slab, stopped_with(slab.lock_file.try_start()):
        ensure_sender(slab, config)
        assert slab.has_sender()


def test_a_slab_that_was_removed_while_in_use_gets_no_sender(settings: Settings, slab_name: str) -> None:
    """Its sender goes on. After that one's end, calls say what happened, and a new producer has a new slab."""
    with Producer(settings()) as old:
        for path in leftovers(slab_name):
            os.unlink(path)
        assert old.send("t", b"served", partition=0).get(20).offset == 0
        kill_sender(old)
        with pytest.raises(SenderError, match="were removed while it was in use"):
            old.send("t", b"lost", partition=0)
        with Producer(settings()) as new:
            assert new.send("t", b"new", partition=0).get(20).offset == 1
        assert sender_starts(old) == 1


def test_an_open_batch_of_a_removed_slab_takes_no_more_records(settings: Settings, slab_name: str) -> None:
    producer = Producer(settings(linger_ms=60_000))
    producer.partitions_for("t")
    producer.send("t", b"first", partition=0)
    for path in leftovers(slab_name):
        os.unlink(path)
    kill_sender(producer)

    def is_refused() -> bool:
        time.sleep(0.05)  # a batch has room for a minute of these
        try:
            producer.send("t", b"", partition=0)
        except SenderError:
            return True
        return False

    wait_until(is_refused, "the watch has noticed")
    with pytest.raises(SenderError, match="the records in it are lost"):
        producer.close()
