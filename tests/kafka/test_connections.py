"""Connections come and go: no batch is lost between them, or sent from memory that was reused."""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import ssl
import struct
import threading
import time
from typing import Any

import pytest
from batches import make_batch, scattered
from fake_broker import FakeBroker, Request, produced, silent
from fixture_types import LogCapture, MonkeyPatch
from producers import kafka_settings, wait_until, wait_until_gone
from wires import MakeWire, Wire, now_ms

from shmaccum import Producer
from shmaccum._core import ProduceBatch
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import (
    IllegalSaslStateError,
    NetworkError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
)
from tools.kafka.ports import free_port
from tools.support.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    api_versions,
    response,
)
from tools.support.proxy import Server

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BY_PASSWORD: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "user",
    "sasl_password": "secret",
}


def batch(to: TopicPartition = T0, size: int = 10) -> ProduceBatch:
    return make_batch([bytes(size)], to=to)


def is_free(batch: ProduceBatch) -> bool:
    """Say whether nothing refers to a batch's memory, once its payload is released."""
    memories = [view.obj for view in batch.payload]
    batch.release()
    try:
        for memory in memories:
            assert isinstance(memory, bytearray)
            memory.append(0)  # a bytearray with a view of it cannot grow
    except BufferError:
        return False
    return True


def assert_sleeps(here: Wire) -> None:
    """Check that a poll without anything to do waits, and takes no processor."""
    began, used = time.monotonic(), time.process_time()
    here.poll(300)
    assert time.monotonic() - began >= 0.3
    assert time.process_time() - used < 0.05


# --- handshake ---------------------------------------------------------------------------------------


def test_a_name_that_is_not_known_yet(wire: MakeWire, caplog: LogCapture, monkeypatch: MonkeyPatch) -> None:
    def look_up(*args: Any, **more: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "not known yet")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    here = wire("no-such-host.invalid:9092")
    here.ask_until(lambda: "no-such-host.invalid:9092: not known yet; attempt 2 failed" in caplog.text)
    assert here.transport.failure() is None


def test_a_broker_of_old_versions_is_asked_again_in_them(fake: FakeBroker, here: Wire) -> None:
    """As brokers have it that are older than the question (KIP-511), and librdkafka's mock in a way of its own."""

    def answer(request: Request) -> Any:
        if request.version > 2:
            return api_versions({}, error_code=35)
        return fake.api_versions(request)

    fake.answers[API_VERSIONS] = answer
    assert here.ask(batch())[0].error is None
    assert [request.version for request in fake.of(API_VERSIONS)] == [3, 0, 3, 0]


@pytest.mark.parametrize(("versions", "said"), [((3, 6), "Kafka 2.1"), ((13, 14), "Kafka 2.1"), (None, "controller")])
def test_broker_without_a_common_version(
    fake: FakeBroker, here: Wire, caplog: LogCapture, versions: tuple[int, int] | None, said: str
) -> None:
    if versions is None:
        del fake.versions[PRODUCE]
    else:
        fake.versions[PRODUCE] = versions
    assert here.ask_until(here.transport.failure) is UnsupportedVersionError
    assert said in caplog.text
    assert here.transport.cluster().topic_errors == {"t": UnsupportedVersionError}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (METADATA, "no support for Metadata requests: bootstrap.servers may name a controller"),
        (INIT_PRODUCER_ID, "no support for InitProducerId requests: set enable.idempotence to false"),
    ],
)
def test_broker_without_a_request_that_a_sender_needs(
    fake: FakeBroker, wire: MakeWire, caplog: LogCapture, key: int, said: str
) -> None:
    del fake.versions[key]
    here = wire(fake.servers)
    assert here.ask_until(here.transport.failure) is UnsupportedVersionError
    assert said in caplog.text
    if key == INIT_PRODUCER_ID:
        assert wire(fake.servers, enable_idempotence=False).ask(batch())[0].error is None


def test_a_producer_learns_which_request_is_missing(fake: FakeBroker, slab_name: str) -> None:
    del fake.versions[INIT_PRODUCER_ID]
    said = f"bootstrap.servers = '{fake.servers}'.*no support for InitProducerId"
    with (
        Producer(kafka_settings(fake.servers, slab_name)) as producer,
        pytest.raises(UnsupportedVersionError, match=said),
    ):
        producer.send("t", b"x")
    wait_until_gone(slab_name)


@pytest.mark.parametrize("key", [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_broker_in_trouble_does_not_refuse_us(fake: FakeBroker, wire: MakeWire, caplog: LogCapture, key: int) -> None:
    """An error that says nothing of our login, or of our versions, is one to wait for the end of."""
    fake.let_in("PLAIN")
    answer, fake.answers[key] = fake.answers[key], lambda request: response(key, error_code=UnknownServerError.code)
    here = wire(fake.servers, **BY_PASSWORD)
    here.ask_until(lambda: "with error code -1; attempt 2 failed" in caplog.text)
    assert here.transport.cluster().topic_errors == {"t": NetworkError}
    assert not fake.of(METADATA)
    fake.answers[key] = answer
    here.leader(T0)


def test_a_broker_that_refuses_the_handshake_of_sasl(fake: FakeBroker, wire: MakeWire) -> None:
    fake.let_in("PLAIN")
    fake.answers[SASL_HANDSHAKE] = lambda request: response(SASL_HANDSHAKE, error_code=IllegalSaslStateError.code)
    here = wire(fake.servers, **BY_PASSWORD)
    assert here.ask_until(here.transport.failure) is IllegalSaslStateError
    assert not fake.of(SASL_AUTHENTICATE), "the password stays here"


def test_requests_name_the_client(fake: FakeBroker, wire: MakeWire) -> None:
    wire(fake.servers, client_id="the-app").ask(batch())
    assert b"shmaccum" in fake.of(API_VERSIONS)[0].frame
    assert all(b"\x00\x07the-app" in request.frame for request in fake.requests)
    wire(fake.servers, client_id="", shmaccum_name="flights").ask(batch())
    assert b"shmaccum-flights" in fake.of(PRODUCE)[-1].frame


def test_broker_that_never_answers_api_versions(fake: FakeBroker, wire: MakeWire) -> None:
    """A broker that accepts and stays silent is disconnected, and tried again later."""
    fake.answers[API_VERSIONS] = silent
    setup = {"socket_connection_setup_timeout_ms": 50, "socket_connection_setup_timeout_max_ms": 50}
    here = wire(fake.servers, reconnect_backoff_ms=5, **setup)
    here.ask_until(lambda: len(fake.connections) >= 2)
    fake.answers[API_VERSIONS] = fake.api_versions
    here.leader(T0)


def test_waits_longer_after_each_failure(wire: MakeWire) -> None:
    """KIP-144: exponential, with a fifth more or less at random."""
    here = wire(f"127.0.0.1:{free_port()}", reconnect_backoff_ms=40, reconnect_backoff_max_ms=160)
    node = Node(5, "127.0.0.1", free_port())
    brokers = here.transport._brokers
    for failures, wait_ms in enumerate((40, 80, 160, 160), start=1):
        assert not here.transport.ready(node, now_ms())
        here.until(lambda failures=failures: brokers._brokers[5].failures == failures)
        assert here.transport.connection_delay_ms(node, now_ms()) <= wait_ms * 1.2 + 1
        assert brokers._backoff.wait_ms(failures) >= wait_ms * 0.8
        retry_ms = brokers._brokers[5].retry_ms
        assert brokers.next_chance_ms([node], now_ms()) == retry_ms
        assert not brokers.ready(node, retry_ms - 1)
        assert brokers._brokers[5].connection is None
        here.until(lambda: here.transport.connection_delay_ms(node, now_ms()) == 0)


def test_a_first_wait_above_the_maximum_is_the_maximum(fake: FakeBroker, wire: MakeWire) -> None:
    """As in Kafka's ``ExponentialBackoff``: to connect again, and to ask again."""

    def introduce(request: Request) -> Any:
        if len(fake.connections) < 3:
            raise EOFError
        return fake.api_versions(request)

    fake.answers[API_VERSIONS] = introduce
    fake.answers[METADATA] = lambda request: fake.metadata(request, error=5 * (len(fake.of(METADATA)) < 3))
    waits = {"reconnect_backoff_max_ms": 20, "retry_backoff_max_ms": 20}
    wire(fake.servers, reconnect_backoff_ms=60_000, retry_backoff_ms=60_000, **waits).leader(T0)


def test_a_port_that_may_need_a_login(fake: FakeBroker, wire: MakeWire, caplog: LogCapture) -> None:
    def end(request: Request) -> None:
        raise EOFError

    metadata, fake.answers[METADATA] = fake.answers[METADATA], end
    here = wire(fake.servers)
    here.ask_until(lambda: "the broker closed the connection; does this port need a login" in caplog.text)
    fake.answers[METADATA] = metadata
    here.ask(batch())
    caplog.clear()
    fake.answers[PRODUCE] = end
    assert here.ask(batch())[0].error is NetworkError
    assert "the broker closed the connection" in caplog.text
    assert "login" not in caplog.text


def test_a_port_that_resets_before_the_tls_handshake(
    fake: FakeBroker, wire: MakeWire, caplog: LogCapture, monkeypatch: MonkeyPatch
) -> None:
    """If something came before the reset, `ssl` closes the socket."""

    def wrap(context: ssl.SSLContext, connection: socket.socket, **more: object) -> None:
        connection.close()
        error = ssl.SSLError(errno.ENOTCONN, "Closed before TLS handshake with data in recv buffer.")
        error.reason = error.strerror
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap)
    here = wire(fake.servers, security_protocol="SSL")
    here.ask_until(lambda: "Closed before TLS handshake with data in recv buffer.; attempt 2" in caplog.text)


def test_a_silent_tls_handshake_takes_no_processor(fake: FakeBroker, wire: MakeWire) -> None:
    """The socket takes bytes all the time, but there are none to send."""
    here = wire(fake.servers, security_protocol="SSL")  # for the broker, the first of a frame of 300 MB
    here.ask_until(lambda: fake._sockets)
    here.poll(100)
    assert_sleeps(here)


class _Leaving(Server):
    """Ends each TLS handshake: by these bytes, or a reset if there are none."""

    def __init__(self, last_words: str) -> None:
        self._last_words = bytes.fromhex(last_words)
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(self._last_words)
        if not self._last_words:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("last_words", ["15030300020100", "1503030002015a15030300020100", ""])
def test_a_broker_that_stops_in_the_tls_handshake_does_not_refuse_us(
    wire: MakeWire, caplog: LogCapture, last_words: str
) -> None:
    """It comes back. Java sends close_notify as it stops, often behind user_canceled."""
    with _Leaving(last_words) as leaving:
        here = wire(f"127.0.0.1:{leaving.port}", security_protocol="SSL")
        here.ask_until(lambda: "attempt 2 failed" in caplog.text)
    assert here.transport.cluster().topic_errors == {"t": NetworkError}
    assert ("the broker closed the connection in the TLS handshake" in caplog.text) == bool(last_words)


def test_failures_before_a_connection_do_not_count_for_its_next_login(
    fake: FakeBroker, wire: MakeWire, caplog: LogCapture
) -> None:
    fake.let_in("PLAIN")
    let_in, introduce = fake.answers[SASL_HANDSHAKE], fake.answers[API_VERSIONS]
    fake.answers[SASL_AUTHENTICATE] = lambda request: response(SASL_AUTHENTICATE, session_lifetime_ms=300)
    # The first connection brings the metadata; the leader's fails three times.
    fake.answers[API_VERSIONS] = lambda request: bytes(4) if 2 <= len(fake.connections) < 5 else introduce(request)
    fake.answers[SASL_HANDSHAKE] = lambda request: let_in(request) if len(fake.of(SASL_HANDSHAKE)) < 3 else None
    more = {"metadata_recovery_strategy": "none", "socket_connection_setup_timeout_ms": 50}
    here = wire(fake.servers, **BY_PASSWORD, **more)
    here.connect(T0)
    here.until(lambda: "not ready within 50 ms" in caplog.text)


def test_another_login_has_a_time_limit_of_its_own(fake: FakeBroker, wire: MakeWire) -> None:
    """The one of the connection's setup has passed by then."""

    def let_in(request: Request) -> Any:
        time.sleep(0.05)
        return response(SASL_AUTHENTICATE, session_lifetime_ms=800)

    fake.let_in("PLAIN")
    fake.answers[SASL_AUTHENTICATE] = let_in
    here = wire(fake.servers, **BY_PASSWORD, socket_connection_setup_timeout_ms=500)
    node = here.connect(T0)
    connection = here.transport._brokers.connection(node)
    logins = len(fake.of(SASL_AUTHENTICATE))
    here.until(lambda: len(fake.of(SASL_AUTHENTICATE)) > logins)
    here.connect(T0)
    assert here.transport._brokers.connection(node) is connection


# --- requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
def test_with_idempotence_the_default_bounds_partitions_not_nodes(
    fake: FakeBroker, wire: MakeWire, idempotent: bool
) -> None:
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, enable_idempotence=idempotent)
    node = here.send(batch())
    for _ in range(4):
        here.send(batch())
    assert here.transport.ready(node, now_ms()) == idempotent


def test_the_transport_is_busy_while_no_node_takes_another_request(fake: FakeBroker, wire: MakeWire) -> None:
    answer = threading.Event()
    fake.answers[PRODUCE] = lambda request: produced((0, 0)) if answer.wait(20) else None
    here = wire(fake.servers, max_in_flight_requests_per_connection=2)
    assert not here.transport.is_busy()  # no node is known
    node = here.send(batch())
    assert not here.transport.is_busy()
    here.send(batch())
    assert here.transport.is_busy()
    assert not here.transport.ready(node, now_ms())
    assert here.transport.connection_delay_ms(node, now_ms()) > 1000
    answer.set()
    here.take(1)
    assert not here.transport.is_busy()


def test_the_transport_is_busy_until_the_last_request_is_out(fake: FakeBroker, wire: MakeWire) -> None:
    """The broker reads a request once it has answered the one before."""
    answer = threading.Event()
    fake.answers[PRODUCE] = lambda request: produced((0, 0)) if answer.wait(20) else None
    here = wire(fake.servers, send_buffer_bytes=1 << 14)
    here.send(batch())
    assert not here.transport.is_busy()
    node = here.send(batch(size=1 << 20))
    assert here.transport.is_busy()
    assert not here.transport.ready(node, now_ms())
    answer.set()
    here.until(lambda: not here.transport.is_busy())
    here.take(2)
    assert here.transport.ready(node, now_ms())


def test_poll_returns_when_a_node_is_ready_again(here: Wire) -> None:
    node = here.leader(T0)
    assert not here.transport.ready(node, now_ms())
    while not here.transport.ready(node, now_ms()):
        here.poll(math.inf)


def test_poll_waits_for_the_doorbell(here: Wire) -> None:
    """And for nothing, where there is nothing: not a moment of the processor."""
    here.ask(batch())
    reader, writer = os.pipe()
    try:
        here.until(lambda: here.transport._inquire(now_ms()) > now_ms() + 5000)
        used = time.process_time()
        assert here.transport.poll(300, reader) == []
        assert time.process_time() - used < 0.1
        os.write(writer, b"!")
        assert here.transport.poll(math.inf, reader) == []
        assert_sleeps(here)  # without a doorbell, though it is still pressed
        assert here.transport.poll(math.inf, reader) == []
    finally:
        here.transport.poll(0, -1)
        os.close(reader)
        os.close(writer)


def test_a_large_request_goes_out_in_parts(fake: FakeBroker, wire: MakeWire) -> None:
    """The first batch is in one piece, larger than the socket takes; the second in more than one call can send."""
    fake.answers[PRODUCE] = lambda request: produced((0, 0), (1, 0))
    here = wire(fake.servers, send_buffer_bytes=4096)
    here.connect(T0)
    fake.pause()
    whole = [make_batch([os.urandom(600_000)], to=to) for to in (T0, T1)]
    large = [whole[0], scattered(whole[1], 500)]
    here.send(*large)
    here.poll(20)
    fake.resume()
    assert [answer.error for answer in here.take(2)] == [None, None]
    assert_sleeps(here)
    frame = fake.of(PRODUCE)[0].frame
    assert all(b"".join(each.payload) in frame for each in large)
    assert all(is_free(each) for each in large)


class _Dripping:
    """A socket that sends in parts, each of which arrives alone; they end within a size, a number, and the rest."""

    def __init__(self, connection: socket.socket) -> None:
        self.recv = connection.recv
        self._sendall = connection.sendall

    def sendall(self, data: bytes) -> None:
        for begin, end in ((0, 2), (2, 6), (6, 12), (12, None)):
            self._sendall(data[begin:end])
            time.sleep(0.02)


class _Slow(FakeBroker):
    def serve(self, connection: Any) -> None:
        super().serve(_Dripping(connection))


def test_answers_that_come_in_parts(wire: MakeWire) -> None:
    with _Slow() as slow:
        here = wire(slow.servers)
        for _ in range(3):
            assert here.ask(batch(T0), batch(T1))[1].base_offset == 101
        assert len(slow.connections) == 2, "that to a bootstrap server, and that to the leader"


def test_many_batches_in_a_request(fake: FakeBroker, here: Wire) -> None:
    many = [make_batch([b"%d" % number], to=TopicPartition("t", number)) for number in range(700)]
    fake.answers[METADATA] = lambda request: fake.metadata(request, partition_count=700)
    fake.answers[PRODUCE] = lambda request: produced(*((number, 0) for number in range(700)))
    answers = here.ask(*many)
    assert [answer.base_offset for answer in answers] == [100 + number for number in range(700)]


def test_without_acknowledgement_a_batch_is_done_when_it_is_sent(fake: FakeBroker, wire: MakeWire) -> None:
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, acks="0", enable_idempotence=False)
    sent = batch()
    (answer,) = here.ask(sent)
    assert (answer.batch, answer.error, answer.base_offset) == (sent, None, -1)
    assert is_free(sent)


# --- ends -------------------------------------------------------------------------------------------


def test_a_request_that_is_not_answered_in_time(fake: FakeBroker, wire: MakeWire) -> None:
    """Its connection is closed, so that what comes late is not taken for another's answer, and what is behind fails."""
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, request_timeout_ms=2000, delivery_timeout_ms=10_000)
    seconds_deadline_ms = 0
    while now_ms() >= seconds_deadline_ms:  # again, where the machine is so slow that the second one is late as well
        first, second = batch(T0), batch(T1)
        here.send(first)
        time.sleep(1)
        seconds_deadline_ms = now_ms() + 2000
        here.send(second)
        late, behind = here.take(2)
    assert (late.batch, late.error) == (first, RequestTimedOutError)
    assert (behind.batch, behind.error) == (second, NetworkError)
    assert "request.timeout.ms (2000 ms)" in late.message
    assert is_free(first)
    assert is_free(second)
    fake.answers[PRODUCE] = lambda request: produced((0, 0))
    here.until(lambda: here.ask(batch())[0].error is None)


def test_an_answer_that_came_in_time_is_not_late_because_nobody_looked(fake: FakeBroker, wire: MakeWire) -> None:
    """A sender that was held up reads first, as ``NetworkClient.poll`` does, and only then looks at the clock."""
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, request_timeout_ms=1000, delivery_timeout_ms=10_000)
    here.send(batch())
    deadline_ms = now_ms() + 1000
    wait_until(lambda: fake.of(PRODUCE), "the request came")
    fake.send(fake.of(PRODUCE)[0].encoded(produced((0, 0))))
    time.sleep((deadline_ms + 100 - now_ms()) / 1000)
    assert here.take(1)[0].error is None


def test_a_request_that_does_not_even_get_out_in_time(fake: FakeBroker, wire: MakeWire) -> None:
    """Most of it is still in the slab: not one byte of that may be sent once it is answered."""
    here = wire(fake.servers, request_timeout_ms=200, delivery_timeout_ms=10_000, send_buffer_bytes=4096)
    here.connect(T0)
    fake.pause()
    large = make_batch([b"\x01" * 8_000_000])
    (answer,) = here.ask(large)
    assert answer.error is RequestTimedOutError
    memory = large.payload[0].obj
    assert is_free(large)
    memory[:] = b"\x02" * len(memory)
    fake.resume()
    here.until(lambda: any(fake.fragments))
    received = max(fake.fragments, key=len)
    assert 0 < len(received) < 8_000_000
    assert b"\x02" * 16 not in received


@pytest.mark.parametrize("acks", ["all", "0"])
def test_a_connection_that_ends(fake: FakeBroker, wire: MakeWire, acks: str) -> None:
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, acks=acks, enable_idempotence=acks == "all", send_buffer_bytes=4096)
    sent = [make_batch([bytes(8_000_000)], to=T0)]
    here.connect(T0)
    fake.pause()
    here.send(*sent)
    here.poll(20)
    fake.cut()
    fake.resume()
    (answer,) = here.take(1)
    assert answer.error is NetworkError
    assert f"broker 1 at 127.0.0.1:{fake.port}" in answer.message
    assert is_free(sent[0])


def test_requests_over_a_connection_that_has_ended(fake: FakeBroker, here: Wire) -> None:
    """It shows when one is sent, before anything is read."""
    node = here.connect(T0)
    fake.cut()
    for to in (T0, T1, T0):  # the first ones still go out, into the void
        here.transport.send(node, [batch(to)], now_ms())
        time.sleep(0.05)
    assert not here.transport._brokers.connection(node)
    assert [answer.error for answer in here.take(3)] == [NetworkError] * 3


def test_metadata_is_asked_for_again_after_a_connection_ended(fake: FakeBroker, here: Wire) -> None:
    """The leader may be another one now."""
    here.ask(batch())
    asked = len(fake.of(METADATA))
    fake.cut()
    here.until(lambda: len(fake.of(METADATA)) > asked)


def test_without_a_connection_there_is_an_answer_all_the_same(here: Wire) -> None:
    node = here.leader(T0)
    here.transport.send(node, [batch()], now_ms())
    assert here.take(1)[0].error is NetworkError


def test_an_idle_connection_is_closed(fake: FakeBroker, wire: MakeWire) -> None:
    setup = {"socket_connection_setup_timeout_ms": 100_000, "socket_connection_setup_timeout_max_ms": 100_000}
    requests = {"request_timeout_ms": 100_000, "delivery_timeout_ms": 200_000}
    here = wire(fake.servers, connections_max_idle_ms=150, **setup, **requests)
    node = here.connect(T0)
    asked = len(fake.of(METADATA))
    here.until(lambda: not here.transport._brokers.connection(node))
    here.poll(100)
    assert len(fake.of(METADATA)) == asked
    assert here.transport.connection_delay_ms(node, now_ms()) == 0
    assert here.ask(batch())[0].error is None
    here.until(lambda: not here.transport._brokers.connection(node))


def test_a_login_is_no_use_of_a_connection(fake: FakeBroker, wire: MakeWire, caplog: LogCapture) -> None:
    """Else one whose sessions are short would stay open for ever, and log in again and again."""
    caplog.set_level(logging.INFO)
    fake.let_in("PLAIN")
    fake.answers[SASL_AUTHENTICATE] = lambda request: response(SASL_AUTHENTICATE, session_lifetime_ms=100)
    here = wire(fake.servers, **BY_PASSWORD, connections_max_idle_ms=600)
    here.connect(T0)
    here.until(lambda: "without use (connections.max.idle.ms)" in caplog.text)
    assert len(fake.of(SASL_AUTHENTICATE)) >= 4


def test_a_busy_connection_is_not_idle(fake: FakeBroker, wire: MakeWire) -> None:
    fake.answers[PRODUCE] = silent
    here = wire(fake.servers, connections_max_idle_ms=50)
    node = here.send(batch())
    for _ in range(3):
        here.poll(60)
    assert here.transport._brokers.connection(node)


def test_inquiry_goes_to_a_broker_that_is_not_busy(wire: MakeWire, monkeypatch: MonkeyPatch) -> None:
    """One broker that does not answer does not keep us from asking another; its connection stays the only one."""
    monkeypatch.setattr("random.choice", lambda brokers: brokers[0])
    with FakeBroker() as silent_one, FakeBroker() as other:
        here = wire(silent_one.servers, max_in_flight_requests_per_connection=1)
        both = [(1, silent_one), (2, other)]
        for each in (silent_one, other):
            each.answers[METADATA] = lambda request: silent_one.metadata(request, brokers=both)
        silent_one.answers[PRODUCE] = silent
        here.send(batch())
        here.ask_until(lambda: other.of(METADATA))
        assert here.until(lambda: here.transport.cluster().partition_counts) == {"t": 2}


def test_the_first_brokers_are_asked_again_when_all_others_are_gone(wire: MakeWire) -> None:
    with FakeBroker() as old, FakeBroker() as new:
        here = wire(f"{old.servers},{new.servers}", reconnect_backoff_max_ms=100)
        new.answers[METADATA] = old.metadata
        here.connect(T0)
        new.answers[METADATA] = new.metadata
        old.stop()
        here.ask_until(lambda: here.transport.cluster().leader_for(T0) == Node(1, "127.0.0.1", new.port))
        assert here.ask(batch())[0].error is None


def test_a_broker_that_moves(fake: FakeBroker, here: Wire) -> None:
    """The same number at another address is another connection; nothing waits for answers over the first one."""
    fake.answers[PRODUCE] = silent
    here.send(batch())
    with FakeBroker() as elsewhere:
        here.transport.ready(Node(1, "127.0.0.1", elsewhere.port), now_ms())
        assert here.take(1)[0].error is NetworkError
        fake.answers[METADATA] = elsewhere.metadata
        here.ask_until(lambda: here.leader(T0).port == elsewhere.port)
        here.ask(batch())
        assert len(elsewhere.of(PRODUCE)) == 1


def test_close_releases_everything(fake: FakeBroker, wire: MakeWire) -> None:
    fake.answers[PRODUCE] = silent
    here = Wire(fake.servers, {})
    sent = batch()
    brokers = here.transport._brokers
    connection = brokers.connection(here.send(sent))
    assert connection is not None
    here.transport.close()
    assert (connection._channel.fileno(), brokers.background_calls._wakeup) == (-1, -1)
    assert brokers.poller._epoll.closed
    assert is_free(sent)
    assert here.transport._answers == []


def test_a_closed_transport_leaves_no_descriptor() -> None:
    """The processes of transactions open several."""
    before = os.listdir("/proc/self/fd")
    here = Wire("127.0.0.1:9092", {})
    assert len(os.listdir("/proc/self/fd")) > len(before)
    here.transport.close()
    assert os.listdir("/proc/self/fd") == before


def test_nothing_secret_or_endless_is_logged(here: Wire, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)
    here.ask(make_batch([b"confidential"]))
    assert "confidential" not in caplog.text
