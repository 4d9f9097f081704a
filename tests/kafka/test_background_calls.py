"""A call that blocks (name look-up, token, Kerberos) delays only the broker that needs it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tokens
from batches import make_batch
from fake_broker import FakeBroker, Request
from fixture_types import LogCapture, MonkeyPatch
from producers import kafka_settings, kill_sender, sender_pid, wait_until, wait_until_gone
from wires import MakeWire, now_ms

from shmaccum import Producer
from shmaccum.cluster import Node, TopicPartition
from shmaccum.kafka.background_calls import BackgroundCall, BackgroundCalls
from shmaccum.kafka.poller import Poller
from tools.kafka.ports import free_port
from tools.support.messages import METADATA, PRODUCE, SASL_HANDSHAKE

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SHORT: dict[str, Any] = {"socket_connection_setup_timeout_ms": 100, "socket_connection_setup_timeout_max_ms": 100}
LONG: dict[str, Any] = {"socket_connection_setup_timeout_ms": 60_000, "socket_connection_setup_timeout_max_ms": 60_000}


# --- names ------------------------------------------------------------------------------------------------


class Resolver:
    """Looks names up slowly.

    Attributes:
        asked: the threads that asked for a name.
        may_return: look-ups block until it is set.
    """

    def __init__(self, port: int) -> None:
        self.asked: list[threading.Thread] = []
        self.may_return = threading.Event()
        self._port = port
        self._real = socket.getaddrinfo

    def __call__(self, host: str, port: int, *args: Any, **more: Any) -> Any:
        if host != "slow.example" or more.get("flags"):
            return self._real(host, port, *args, **more)
        self.asked.append(threading.current_thread())
        self.may_return.wait()
        return self._real("127.0.0.1", self._port, *args, **more)


@pytest.fixture
def resolver(fake: FakeBroker, monkeypatch: MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver(fake.port)
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.may_return.set()
    for thread in resolver.asked:
        thread.join()


def test_slow_name_lookup_delays_only_its_broker(fake: FakeBroker, wire: MakeWire, resolver: Resolver) -> None:
    here = wire(fake.servers, **LONG)
    here.connect(T0)
    slow = Node(2, "slow.example", 9092)
    assert not here.transport.ready(slow, now_ms())
    wait_until(lambda: resolver.asked, "the name is looked up")
    assert resolver.asked[0] is not threading.main_thread()
    for _ in range(3):
        assert here.ask(make_batch([b"x"]))[0].error is None
        assert not here.transport.ready(slow, now_ms())
    resolver.may_return.set()
    here.until(lambda: here.transport.ready(slow, now_ms()))
    assert len(resolver.asked) == 1
    assert here.transport._brokers._brokers[2].lookup is None, "it takes no longer"


def test_name_lookup_timeout(fake: FakeBroker, wire: MakeWire, resolver: Resolver, caplog: LogCapture) -> None:
    """The next attempt waits for the first one, rather than for a thread of its own."""
    here = wire("slow.example:9092", reconnect_backoff_ms=1, reconnect_backoff_max_ms=1, **SHORT)
    here.ask_until(lambda: "its name took longer than socket.connection.setup.timeout.ms; attempt 2" in caplog.text)
    assert here.transport.failure() is None
    assert len(resolver.asked) == 1
    resolver.may_return.set()
    here.leader(T0)


def test_name_lookup_timeout_beside_a_broker_that_nothing_needed_yet(
    fake: FakeBroker, wire: MakeWire, resolver: Resolver, caplog: LogCapture
) -> None:
    def answer(request: Request) -> Any:
        response = fake.metadata(request, brokers=[(1, fake), (2, fake)])
        response.brokers[0].host = "slow.example"
        return response

    fake.answers[METADATA] = answer
    here = wire(fake.servers, **SHORT)
    node = here.leader(T0)
    here.until(lambda: here.transport.ready(node, now_ms()) or "its name took longer" in caplog.text)
    assert "its name took longer" in caplog.text
    resolver.may_return.set()
    here.connect(T0)


def test_each_address_of_a_name_is_tried(fake: FakeBroker, wire: MakeWire, monkeypatch: MonkeyPatch) -> None:
    """And once one has answered, the name is looked up for the next connection: the broker can have moved."""
    look_up, asked = socket.getaddrinfo, []

    def answer(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host != "many.example" or more.get("flags"):
            return look_up(host, port, *args, **more)
        asked.append(host)
        return [found for port in ports for found in look_up("127.0.0.1", port, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with FakeBroker() as stale, FakeBroker() as moved:
        here = wire(fake.servers, reconnect_backoff_ms=1)
        here.connect(T0)
        node = Node(2, "many.example", 9092)
        ports = [free_port(), fake.port, stale.port]
        here.until(lambda: here.transport.ready(node, now_ms()))
        assert (len(fake.connections), len(asked)) == (3, 1)
        ports = [moved.port]
        fake.cut()
        here.until(lambda: not here.transport.ready(node, now_ms()))
        here.until(lambda: here.transport.ready(node, now_ms()))
        assert (len(stale.connections), len(moved.connections), len(asked)) == (0, 1, 2)


def test_another_of_the_first_brokers_is_asked_when_a_name_takes_too_long(
    fake: FakeBroker, wire: MakeWire, resolver: Resolver
) -> None:
    here = wire(f"slow.example:9092,{fake.servers}", **SHORT)
    here.leader(T0)


def test_closing_does_not_wait_for_a_name(fake: FakeBroker, wire: MakeWire, resolver: Resolver) -> None:
    here = wire("slow.example:9092", **LONG)
    here.transport.request_update(["t"])
    here.poll(0)
    wait_until(lambda: resolver.asked, "the name is looked up")
    # Closed by the fixture, before the name may be known.


# --- tokens -----------------------------------------------------------------------------------------------

BY_TOKEN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture
def slow_token() -> Iterator[dict[str, Any]]:
    """Return the settings for a token provider that returns when it may."""
    tokens.asked.clear()
    yield BY_TOKEN | {"sasl_oauthbearer_token_provider": "tokens.slow_token"}
    tokens.may_return.set()
    wait_until(lambda: not threads(), "all have got a token")
    tokens.may_return.clear()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "shmaccum-background-call"]


def test_slow_token_delays_only_its_login(fake: FakeBroker, wire: MakeWire, slow_token: dict[str, Any]) -> None:
    tokens.may_return.set()
    with FakeBroker() as other:
        for broker in (fake, other):
            broker.let_in("OAUTHBEARER")
            broker.answers[METADATA] = lambda request: fake.metadata(request, brokers=[(1, fake), (2, other)])
        here = wire(fake.servers, **slow_token, **LONG)
        here.connect(T0)
        tokens.may_return.clear()
        tokens.asked.clear()
        second = here.transport.cluster().nodes[2]
        here.until(lambda: here.transport.ready(second, now_ms()) or tokens.asked)
        for _ in range(3):
            assert here.ask(make_batch([b"x"]))[0].error is None
            assert not here.transport.ready(second, now_ms())
        tokens.may_return.set()
        here.until(lambda: here.transport.ready(second, now_ms()))
    assert set(tokens.asked) == {"shmaccum-background-call"}


def test_token_timeout(fake: FakeBroker, wire: MakeWire, slow_token: dict[str, Any], caplog: LogCapture) -> None:
    """The error names the provider, which is not called again while a call runs."""
    fake.let_in("OAUTHBEARER")
    here = wire(fake.servers, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1, **slow_token, **SHORT)
    here.ask_until(lambda: len(fake.connections) > 3)
    assert "not ready within" in caplog.text
    assert "since sasl.oauthbearer.token.provider takes longer" in caplog.text
    assert here.transport.failure() is None
    assert len(tokens.asked) == len(threads()) == 1
    tokens.may_return.set()
    here.leader(T0)


def test_one_thread_at_a_time_asks_for_a_token(fake: FakeBroker, wire: MakeWire, slow_token: dict[str, Any]) -> None:
    """Whichever broker it is for."""
    fake.let_in("OAUTHBEARER")
    here = wire(fake.servers, **slow_token, **LONG)
    here.ask_until(lambda: tokens.asked)
    second = Node(2, "localhost", fake.port)
    here.transport.ready(second, now_ms())
    here.until(lambda: len(fake.of(SASL_HANDSHAKE)) == 2)
    here.poll(100)
    assert len(tokens.asked) == 1
    tokens.may_return.set()
    here.until(lambda: here.transport.ready(second, now_ms()))


def test_a_token_provider_that_ends_the_program(
    fake: FakeBroker, wire: MakeWire, monkeypatch: MonkeyPatch, caplog: LogCapture
) -> None:
    fake.let_in("OAUTHBEARER")
    monkeypatch.setattr(tokens, "no_token", lambda: os.sys.exit("secret"))  # type: ignore[attr-defined]
    here = wire(fake.servers, **BY_TOKEN, sasl_oauthbearer_token_provider="tokens.no_token")
    here.ask_until(here.transport.failure)
    assert "SystemExit" in caplog.text
    assert "secret" not in caplog.text


# --- the sender as a process ------------------------------------------------------------------------------


@pytest.fixture
def waiting(
    fake: FakeBroker, slab_name: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> Iterator[tuple[Producer, Path]]:
    """Return a producer whose sender gets tokens only while there is a file, and that file."""
    fake.let_in("OAUTHBEARER")
    monkeypatch.setenv("TOKENS", str(tmp_path))
    given = BY_TOKEN | LONG | {"sasl_oauthbearer_token_provider": "tokens.token_of_a_file", "max_block_ms": 60_000}
    with Producer(kafka_settings(fake.servers, slab_name, **given)) as producer:
        yield producer, tmp_path / "may-return"
        (tmp_path / "may-return").touch()
    wait_until_gone(slab_name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sender_ends_while_it_waits_for_a_token(
    fake: FakeBroker, waiting: tuple[Producer, Path], tmp_path: Path, number: int
) -> None:
    """And the next one goes on with all that the slab holds."""
    producer, allowed = waiting
    asked = tmp_path / "asked"
    allowed.touch()
    producer.send("t", b"1", partition=0).get(60)
    allowed.unlink()
    asked.unlink()
    kill_sender(producer)
    second = producer.send("t", b"2", partition=0)
    wait_until(asked.exists, "the next sender asks for a token")
    pid = sender_pid(producer)
    asked.unlink()

    def has_ended() -> bool:
        """Say whether there is another sender; at the first SIGTERM it would deliver what is there, and leave then."""
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return sender_pid(producer) not in (0, pid)

    wait_until(has_ended, "there is another sender")
    wait_until(asked.exists, "it asks for a token")
    assert len(fake.of(PRODUCE)) == 1
    allowed.touch()
    second.get(60)
    assert len(fake.of(PRODUCE)) == 2


# --- background_calls ----------------------------------------------------------------------------------------------


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


def test_no_thread_for_a_call(poller: Poller, monkeypatch: MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background_calls = BackgroundCalls(poller)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="no thread can be started for a"):
            background_calls.run("a", lambda: None, lambda result, error: None)
    background_calls.close()


def test_calls_of_a_key_run_one_after_the_other(poller: Poller) -> None:
    """Of those that wait, the cancelled ones never run. Once all results are there, nothing wakes the sender."""
    background_calls = BackgroundCalls(poller)
    may_go_on, running, results = threading.Event(), threading.Lock(), []

    def call(number: int) -> int:
        with suppress(AssertionError):
            assert running.acquire(blocking=False)
            may_go_on.wait()
            running.release()
            return number
        return -number

    def run(number: int) -> BackgroundCall:
        return background_calls.run("a", partial(call, number), lambda result, error: results.append(result))

    run(1)
    run(2)
    run(3).cancel()
    run(4).cancel()
    run(5)
    may_go_on.set()
    wait_until(lambda: poller.wait(100) or len(results) == 3, "all results have come")
    assert results == [1, 2, 5]
    began = time.monotonic()
    poller.wait(100)
    assert time.monotonic() - began >= 0.1
    background_calls.close()


def test_call_that_ends_after_close(poller: Poller) -> None:
    background_calls = BackgroundCalls(poller)
    may_go_on = threading.Event()
    background_calls.run("a", may_go_on.wait, lambda result, error: pytest.fail("told"))
    background_calls.run("a", lambda: pytest.fail("run"), lambda result, error: None)
    background_calls.close()
    may_go_on.set()
    wait_until(lambda: not threads(), "the thread is done")
