"""The handler for logging: in threads, forks, signals and at the end of a process."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from brokers import PATIENCE_S, consume
from fixture_types import Capture, Link, MonkeyPatch, Start
from processes import in_threads
from producers import kill_sender, settings_of, stopped_sender, wait_until_gone
from runs import run_python
from senders import read_values

from shmaccum import Producer
from shmaccum import logging as module
from shmaccum.errors import ConfigError
from shmaccum.logging import KafkaHandler
from tools.kafka import KafkaCluster

Config = dict[str, Any]
Handler = Callable[..., KafkaHandler]


@pytest.fixture(scope="module")
def config(kafka: KafkaCluster) -> Iterator[Config]:
    """Return settings of a small slab, which stays from one test to the next, and must go at the end."""
    name = f"logging-{os.getpid()}"
    own = {"shmaccum.name": name, "sender.idle.ms": 1000, "buffer.memory": 1 << 18}
    yield {"bootstrap.servers": kafka.bootstrap_servers, **own}
    wait_until_gone(name)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Return a logger of its own, for all levels."""
    made = logging.getLogger(f"test.{os.getpid()}")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)


@pytest.fixture
def handler(config: Config, logger: logging.Logger, kafka: KafkaCluster, topic: str) -> Iterator[Handler]:
    """Return ``handler(**options)``: a handler of the logger, for an existing topic of one partition."""
    kafka.admin.create_topic(topic)
    made: list[KafkaHandler] = []

    def make(**options: Any) -> KafkaHandler:
        made.append(KafkaHandler(**({"topic": topic, "config": config} | options)))
        logger.addHandler(made[-1])
        return made[-1]

    yield make
    for each in made:
        each.close()


def read(config: Config, topic: str) -> list[Any]:
    found = consume({"bootstrap.servers": config["bootstrap.servers"]}, topic)
    return [record for records in found.values() for record in records]


def texts(config: Config, topic: str) -> list[str]:
    return [record.value().decode() for record in read(config, topic)]


def test_records_arrive_with_key_time_and_topic(
    handler: Handler, logger: logging.Logger, kafka: KafkaCluster, config: Config, topic: str
) -> None:
    """A key is a template or a function, a topic can be a template; a killed sender is replaced."""
    kafka.admin.create_topic(f"{topic}-ERROR")
    first = handler(key="%(processName)s", partition=0)
    first.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    assert first._producer is None, "made with the first record"
    second = handler(key=lambda record: record.levelname, topic=f"{topic}-%(levelname)s", level="ERROR")
    logger.info("first %d", 1)
    first.flush()
    kill_sender(first._producer)  # type: ignore[arg-type]
    logger.error("second")
    first.flush()
    second.flush()
    found = read(config, topic)
    expected = [(b"MainProcess", b"INFO first 1"), (b"MainProcess", b"ERROR second")]
    assert [(each.key(), each.value()) for each in found] == expected
    assert found[0].timestamp()[1] > 1_700_000_000_000
    (other,) = read(config, f"{topic}-ERROR")
    assert (other.key(), other.value()) == (b"ERROR", b"second")
    assert [first.dropped, first.failed, second.dropped, second.failed] == [0] * 4


def log_in_child(link: Link, config: Config, topic: str, name: str, count: int) -> None:
    """Log, and leave as a killed process does: nothing is flushed."""
    logger = logging.getLogger("child")
    logger.setLevel(logging.INFO)
    logger.addHandler(KafkaHandler(topic, config))
    for number in range(count):
        logger.info("%s %d", name, number)
    link.send("logged")
    link.recv()


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_what_processes_have_logged_survives_their_death(
    handler: Handler, logger: logging.Logger, config: Config, topic: str, start: Start, how: Any
) -> None:
    made = handler()
    logger.info("parent 0")
    children = [start(log_in_child, config, topic, f"child{number}", 50, how=how).ready() for number in range(3)]
    for child in children:
        child.kill()
    made.flush()
    logger.info("parent 1")
    made.close()  # also waits: the sender has all of the slab by then
    expected = {f"child{child} {number}" for child in range(3) for number in range(50)} | {"parent 0", "parent 1"}
    found = texts(config, topic)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_a_forked_child_uses_its_parents_handler(
    handler: Handler, logger: logging.Logger, config: Config, topic: str, start: Start
) -> None:
    """While other threads of the parent log: no lock of the handler is held over the fork."""
    made = handler()
    stop = threading.Event()

    def log() -> None:
        while not stop.wait(0.0005):  # without a pause they could fill the memory, and a child's record be dropped
            logger.debug("noise")

    def child(link: Link, number: int) -> int:
        logger.info("child %d", number)
        return made.dropped

    with in_threads(log, log):
        try:
            dropped = [start(child, number, how="fork").result() for number in range(5)]
        finally:
            stop.set()
    made.flush()
    assert dropped == [0] * 5
    assert {f"child {number}" for number in range(5)} <= set(texts(config, topic))


DAEMON = """
import json, logging, os, sys, time
from shmaccum.logging import KafkaHandler
from shmaccum.shm.names import leftovers
config = json.loads(sys.argv[1])
handler = KafkaHandler("t", config)
logger = logging.getLogger("daemon")
logger.addHandler(handler)
logger.error("of the parent")
handler.flush()
if os.fork():
    os._exit(0)
while any(map(os.path.exists, leftovers(config["shmaccum.name"]))):
    time.sleep(0.01)
logger.error("of the daemon")
handler.close()
print(handler.dropped)
"""


def test_a_daemon_logs_after_its_parents_slab_is_gone(tmp_path: Path, slab_name: str) -> None:
    """Between fork and first record nothing used the slab. Before, each record of the daemon was dropped, for ever."""
    done = run_python("-c", DAEMON, json.dumps(settings_of(slab_name, tmp_path, num_partitions=1)))
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert read_values(tmp_path, "t") == [b"of the parent", b"of the daemon"]
    wait_until_gone(slab_name)


def test_a_handler_that_is_closed_while_it_makes_its_producer_closes_that(
    tmp_path: Path, slab_name: str, logger: logging.Logger, monkeypatch: MonkeyPatch
) -> None:
    made = KafkaHandler("t", settings_of(slab_name, tmp_path))
    logger.addHandler(made)

    class Slow(Producer):
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            made.close()

    monkeypatch.setattr(module, "Producer", Slow)
    logger.error("late")
    assert (made.dropped, made._producer) == (1, None)
    wait_until_gone(slab_name)


def fill(logger: logging.Logger, count: int = 100) -> None:
    for _ in range(count):
        logger.info("x" * 10_000)


def test_a_full_slab_drops_and_counts(handler: Handler, logger: logging.Logger, config: Config, topic: str) -> None:
    made = handler(on_full="drop")
    logger.info("first")
    made.flush()
    with stopped_sender(made._producer):  # type: ignore[arg-type]
        fill(logger)
        dropped = made.dropped
        assert 0 < dropped < 100
    made.flush()
    assert (made.dropped, made.failed) == (dropped, 0)
    assert len(texts(config, topic)) == 101 - dropped


def test_a_full_slab_blocks_and_loses_nothing(
    handler: Handler, logger: logging.Logger, config: Config, topic: str
) -> None:
    made = handler(on_full="block")
    logger.info("first")
    made.flush()
    threads = [threading.Thread(target=fill, args=(logger,)) for _ in range(2)]
    with stopped_sender(made._producer):  # type: ignore[arg-type]
        for thread in threads:
            thread.start()
        threads[0].join(0.2)
        assert threads[0].is_alive()
        assert made.lock is not None
        assert made.lock.acquire(blocking=False), "a thread that waits does not hold the handler's lock"
        made.lock.release()
    for thread in threads:
        thread.join(PATIENCE_S)
    made.flush()
    assert (made.dropped, made.failed, len(texts(config, topic))) == (0, 0, 201)


def test_a_slab_that_stays_full_is_counted_under_block(
    handler: Handler, logger: logging.Logger, config: Config
) -> None:
    made = handler(on_full="block", config=config | {"max.block.ms": 50})
    logger.info("first")
    made.flush()
    with stopped_sender(made._producer):  # type: ignore[arg-type]
        fill(logger, 28)
        assert made.dropped > 0


def test_records_of_shmaccum_do_not_recurse(
    handler: Handler, config: Config, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the handler at the root logger, at level DEBUG, and a formatter that logs."""
    made = handler()

    class Logging(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            logging.getLogger("formatter").info("formatting")
            return super().format(record)

    made.setFormatter(Logging())
    root = logging.getLogger()
    root.addHandler(made)
    try:
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("shmaccum.sender").warning("ours")
            logging.getLogger("shmaccum").warning("ours, too")
            logging.getLogger("application").info("theirs")
    finally:
        root.removeHandler(made)
    made.flush()
    assert texts(config, topic) == ["theirs"]
    assert made.dropped == 1, "what the formatter logged"


def test_a_delivery_callback_can_log(handler: Handler, logger: logging.Logger, config: Config, topic: str) -> None:
    """Also one that runs because something else is logged."""
    made = handler()
    logger.info("first")
    made.flush()
    with Producer(config) as producer:
        producer.send(topic, b"record", on_delivery=lambda error, metadata: logger.info("delivered"))
        contributions = producer._accumulator.pending.contributions
        while not contributions.has_news:
            time.sleep(0.01)
        logger.info("other")
    made.flush()
    assert (made.dropped, sorted(texts(config, topic))) == (0, ["delivered", "first", "other", "record"])


def test_a_signals_handler_can_log(handler: Handler, logger: logging.Logger, config: Any, topic: str) -> None:
    """In the middle of another record it is dropped and counted; there is no deadlock."""
    made = handler()
    signals = 0

    def on_signal(*_: object) -> None:
        nonlocal signals
        signals += 1
        logger.info("from the signal")

    before = signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for _ in range(2000):
            logger.info("application")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    made.flush()
    found = texts(config, topic)
    assert signals > 0
    assert len(found) + made.dropped == 2000 + signals
    assert found.count("application") == 2000


def test_a_formatters_error_goes_to_handle_error(
    handler: Handler, logger: logging.Logger, config: Config, topic: str, capsys: Capture
) -> None:
    class Failing(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            if record.msg == "bad":
                raise ValueError("mine")
            return super().format(record)

    made = handler()
    made.setFormatter(Failing())
    logger.info("bad")
    assert "--- Logging error ---" in capsys.readouterr().err
    logger.info("good")
    made.flush()
    assert (made.dropped, texts(config, topic)) == (1, ["good"])


def test_no_broker_drops_and_rests(slab_name: str, logger: logging.Logger) -> None:
    """Only the first record waits for the topic, so that a lost cluster does not slow a program down."""
    config = {"bootstrap.servers": "127.0.0.1:1", "shmaccum.name": slab_name, "sender.idle.ms": 100}
    made = KafkaHandler("t", config, topic_timeout=0.2)
    logger.addHandler(made)
    for _ in range(1000):
        logger.info("lost")
    assert (made.dropped, made.failed) == (1000, 0)
    made.close()
    wait_until_gone(slab_name)


def test_wrong_settings_are_shown_and_counted(logger: logging.Logger, capsys: Capture) -> None:
    with pytest.raises(ConfigError, match="on_full = 'wait'"):
        KafkaHandler("t", {}, on_full="wait")  # type: ignore[arg-type]
    made = KafkaHandler("t", {"no.such": 1})
    logger.addHandler(made)
    logger.info("one")
    logger.info("two")
    assert capsys.readouterr().err.count("ConfigError: no.such") == 1, "the next attempt is 10 s later"
    assert made.dropped == 2
    made.close()


PROGRAM = """
import atexit, logging, logging.config, json, sys
logging.config.dictConfig(json.loads(sys.argv[1]))
logging.getLogger("application").info("logged at the end")
atexit.register(logging.getLogger("application").info, "logged at exit")
"""


def test_dict_config_and_the_interpreters_end(kafka: KafkaCluster, config: Config, topic: str) -> None:
    kafka.admin.create_topic(topic)
    handlers = {
        "kafka": {"class": "shmaccum.logging.KafkaHandler", "topic": topic, "config": config, "key": "%(name)s"}
    }
    settings = {"version": 1, "handlers": handlers, "root": {"level": "INFO", "handlers": ["kafka"]}}
    done = run_python("-c", PROGRAM, json.dumps(settings))
    assert (done.returncode, done.stderr) == (0, "")
    assert [(record.key(), record.value()) for record in read(config, topic)] == [
        (b"application", b"logged at the end"),
        (b"application", b"logged at exit"),
    ]


def test_shutdown_waits_once(handler: Handler, logger: logging.Logger) -> None:
    """It flushes and then closes; `close` alone waits, too."""
    for end in (lambda made: logging.shutdown([weakref.ref(made)]), KafkaHandler.close):
        made = handler(flush_timeout=0.5)
        logger.info("first")
        made.flush()
        with stopped_sender(made._producer):
            logger.info("second")
            begun = time.monotonic()
            end(made)
            assert 0.5 <= time.monotonic() - begun < 0.9
        logger.removeHandler(made)


def test_settings_can_come_from_a_file(tmp_path: Path, slab_name: str, logger: logging.Logger) -> None:
    file = tmp_path / "producer.json"
    file.write_text(json.dumps(settings_of(slab_name, tmp_path / "log")))
    made = KafkaHandler("t", file)
    logger.addHandler(made)
    logger.info("here")
    made.flush()
    assert (made.dropped, made.failed) == (0, 0)
    made.close()
    made.close()
    logger.info("too late")
    assert made.dropped == 1
    wait_until_gone(slab_name)


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import json, logging, sys
import gevent
from shmaccum.logging import KafkaHandler

handler = KafkaHandler(sys.argv[1], json.loads(sys.argv[2]))
logging.basicConfig(level=logging.INFO, handlers=[handler])

def log(number):
    for each in range(50):
        logging.info("%d %d", number, each)

gevent.joinall([gevent.spawn(log, number) for number in range(10)])
handler.flush()
print(handler.dropped, handler.failed)
"""


def test_greenlets_do_not_take_each_other_for_recursion(kafka: KafkaCluster, config: Config, topic: str) -> None:
    kafka.admin.create_topic(topic)
    done = run_python("-c", GREENLETS, topic, json.dumps(config))
    assert (done.stdout, done.returncode) == ("0 0\n", 0), done.stderr
    assert len(set(texts(config, topic))) == 500
