"""Broken or hostile brokers: their answers take little memory and forge no log line."""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
import tokens
from batches import make_batch
from fake_broker import FakeBroker, Request, authenticated, produced, producer_id_of
from fixture_types import LogCapture, MonkeyPatch
from producers import kafka_settings, wait_until, wait_until_gone
from wires import MakeWire, Wire, now_ms

from shmaccum import Producer
from shmaccum.cluster import TopicPartition
from shmaccum.errors import NetworkError, SaslAuthenticationError, TopicAuthorizationError
from shmaccum.kafka.masking import Mask
from shmaccum.kafka.tls import TlsChannel
from shmaccum.shm.broker_table import brokers
from shmaccum.shm.layout import BrokerState
from shmaccum.shm.lifecycle import look
from tools.kafka import Certificates
from tools.support.messages import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, SASL_AUTHENTICATE, encoded

T0 = TopicPartition("t", 0)
TOKEN = tokens.LONG_TOKEN
FORGED = "\r\n2030-01-01 00:00:00,000 1 CRITICAL root: all is lost\x1b[31m\x1b]0;title\x07\u202e\u2028"
MB = 1 << 20


def head(size: int, request: Request) -> bytes:
    """Return how a frame begins that is an answer."""
    return struct.pack(">ii", size, request.correlation_id)


def is_harmless(text: str) -> bool:
    """Say whether a terminal or a log can take a line, and whether it is not too long."""
    return text.isprintable() and len(text.encode()) <= 1024


def logged(caplog: LogCapture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("shmaccum")]


def assert_recovers(fake: FakeBroker, here: Wire) -> None:
    """Check that the sender finds the leader once the broker says the truth again."""
    fake.answers[METADATA] = fake.metadata
    here.leader(T0)


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [API_VERSIONS, METADATA, INIT_PRODUCER_ID, PRODUCE])
def test_a_frame_is_refused_by_its_size_alone(fake: FakeBroker, wire: MakeWire, caplog: LogCapture, key: int) -> None:
    """The sender neither waits for 99 MB nor keeps them if no answer to the request can have that size."""
    truth = fake.answers[key]
    fake.answers[key] = lambda request: head(99 * MB, request)
    here = wire(fake.servers, request_timeout_ms=60_000, delivery_timeout_ms=600_000)
    if key == PRODUCE:
        (answer,) = here.ask(make_batch([b"x"]))
        assert answer.error is NetworkError
        assert "103809024 bytes" in answer.message
    elif key == INIT_PRODUCER_ID:
        here.transport.init_producer_id()
    here.ask_until(lambda: "an answer of 103809024 bytes" in caplog.text)
    fake.answers[key] = truth
    assert here.producer_id() == (77, 0)
    here.until(lambda: here.ask(make_batch([b"x"]))[0].error is None)


def test_an_answer_to_something_else_is_refused_by_its_first_bytes(fake: FakeBroker, wire: MakeWire) -> None:
    """The sender does not wait for its rest, which never comes."""
    fake.answers[PRODUCE] = lambda request: struct.pack(">ii", 100, request.correlation_id + 1)
    here = wire(fake.servers, request_timeout_ms=60_000, delivery_timeout_ms=600_000)
    (answer,) = here.ask(make_batch([b"x"]))
    assert answer.error is NetworkError
    fake.answers[PRODUCE] = lambda request: produced((0, 0))
    assert here.ask(make_batch([b"x"]))[0].error is None


def test_an_answer_that_is_repeated_is_not_the_next_ones(fake: FakeBroker, here: Wire) -> None:
    assert here.ask(make_batch([b"x"]))[0].error is None
    first = fake.of(PRODUCE)[0]
    fake.answers[PRODUCE] = lambda request: first.encoded(produced((0, 0)))
    assert here.ask(make_batch([b"x"]))[0].error is NetworkError


class _Hasty(FakeBroker):
    """Answers a Produce request by its first bytes, once; then reads the rest."""

    def __init__(self) -> None:
        self.is_hasty = True
        self.is_over = threading.Event()
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        while self.is_hasty:
            head = connection.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)
            if len(head) < 12:
                return
            request = Request(head)
            if request.api_key == PRODUCE:
                self.is_hasty = False
                connection.sendall(request.encoded(produced((0, 0))))
                with suppress(OSError):
                    while connection.recv(MB):
                        pass
                self.is_over.set()
                return
            (size,) = struct.unpack_from(">i", head)
            request = Request(connection.recv(4 + size, socket.MSG_WAITALL))
            connection.sendall(request.encoded(self.answers[request.api_key](request)))
        super().serve(connection)


def test_an_answer_before_all_of_the_request_is_sent_is_refused(wire: MakeWire) -> None:
    """It would free the batch's slots; then what is written there next would go to the broker."""
    with _Hasty() as fake:
        here = wire(fake.servers, send_buffer_bytes=4096)
        batch = make_batch([bytes(4 * MB)] * 2)
        (answer,) = here.ask(batch)
        assert answer.error is NetworkError
        assert "before all of it was sent" in answer.message
        here.until(fake.is_over.is_set)
        here.until(lambda: here.ask(make_batch([b"x"]))[0].error is None)


def test_errors_of_every_record_fit_an_answer(fake: FakeBroker, here: Wire) -> None:
    """A batch of tiny records, each refused in Kafka's words on a topic with the longest name."""
    words = f"Compacted topic cannot accept message without key in topic partition {'t' * 249}-0."
    errors = [{"batch_index": index, "batch_index_error_message": words} for index in range(2000)]
    fake.answers[PRODUCE] = lambda request: produced((0, 87), record_errors=errors, error_message=words)
    (answer,) = here.ask(make_batch([b""] * 2000))
    assert len(answer.invalid_records) == 2000


def test_endless_varint_is_refused(fake: FakeBroker, here: Wire, caplog: LogCapture) -> None:
    """It has five bytes at most: read to its end, 4 MB of it take hours."""
    size = 4 * MB
    fake.answers[METADATA] = lambda request: (
        struct.pack(">ii", size, request.correlation_id) + b"\0\0\0\0\0" + b"\xff" * (size - 9)
    )
    here.ask_until(lambda: "a varint of more than 5 bytes" in caplog.text)
    assert_recovers(fake, here)


@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_a_partition_of_an_absurd_number(fake: FakeBroker, here: Wire, caplog: LogCapture, index: int) -> None:
    def answer(request: Request) -> Any:
        response = fake.metadata(request)
        response.topics[0].partitions[0].partition_index = index
        return response

    fake.answers[METADATA] = answer
    here.ask_until(lambda: "has partition number" in caplog.text)
    assert not here.transport.cluster().partition_counts
    assert_recovers(fake, here)


def test_another_broker_is_asked_when_one_talks_nonsense(
    fake: FakeBroker, wire: MakeWire, caplog: LogCapture, monkeypatch: MonkeyPatch
) -> None:
    """However often the first one may be connected to again meanwhile, and be chosen of those that can be."""
    monkeypatch.setattr("random.choice", lambda brokers: brokers[0])
    caplog.set_level(logging.CRITICAL)
    with FakeBroker() as other:
        members = [(1, fake), (2, other)]
        for broker in (fake, other):
            broker.answers[METADATA] = lambda request: fake.metadata(request, brokers=members)
        here = wire(fake.servers, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0, metadata_max_age_ms=60_000)
        here.connect(T0)
        fake.answers[METADATA] = lambda request: head(99 * MB, request)
        here.ask_until(lambda: other.of(METADATA))
        here.until(lambda: not here.transport.cluster().pending)
        assert len(fake.of(METADATA)) <= 4


def test_a_pause_of_days_is_no_longer_than_a_request_may_take(fake: FakeBroker, wire: MakeWire) -> None:
    fake.answers[PRODUCE] = lambda request: produced((0, 0), throttle_ms=2**31 - 1)
    here = wire(fake.servers, request_timeout_ms=20_000, delivery_timeout_ms=60_000)
    node = here.connect(T0)
    here.ask(make_batch([b"x"]))
    assert 0 < here.transport.connection_delay_ms(node, now_ms()) <= 20_001
    assert not here.transport.ready(node, now_ms())
    assert now_ms() < here.transport._brokers.next_chance_ms([node], now_ms()) <= now_ms() + 20_001
    before = time.monotonic()
    here.poll(50)
    assert time.monotonic() - before >= 0.05, "a sender that waits for the end of the pause does not spin"


def test_a_pause_is_as_long_as_the_broker_says(fake: FakeBroker, wire: MakeWire) -> None:
    fake.answers[PRODUCE] = lambda request: produced((0, 0), throttle_ms=300)
    here = wire(fake.servers)
    node = here.connect(T0)
    here.ask(make_batch([b"x"]))
    answered = time.monotonic()
    assert not here.transport.ready(node, now_ms())
    here.until(lambda: here.transport.ready(node, now_ms()))
    assert 0.2 < time.monotonic() - answered < 5


def test_a_negative_pause_is_none(fake: FakeBroker, slab_name: str) -> None:
    """It would wrap the counter around."""
    fake.answers[PRODUCE] = lambda request: produced((0, 0), throttle_ms=-1000)
    with Producer(kafka_settings(fake.servers, slab_name)) as producer:
        for _ in range(2):  # the first answer is counted by the time of the second
            producer.send("t", b"x", partition=0).get(timeout=60)
        with look(slab_name) as view:
            assert {(broker.throttles, broker.throttle_ms) for broker in brokers(view.words, view.geometry)} == {(0, 0)}
    wait_until_gone(slab_name)


def test_throttling_broker_is_not_asked_if_another_can_be(fake: FakeBroker, here: Wire) -> None:
    with FakeBroker() as other:

        def throttled(request: Request) -> Any:
            response = fake.metadata(request, brokers=[(1, fake), (2, other)])
            response.throttle_time_ms = 86_400_000
            return response

        fake.answers[METADATA] = throttled
        other.answers[METADATA] = lambda request: fake.metadata(request, brokers=[(2, other)], leader=2)
        here.leader(T0)
        other.answers[INIT_PRODUCER_ID] = lambda request: producer_id_of(88)
        fake.answers[INIT_PRODUCER_ID] = lambda request: producer_id_of(-1, 15, 86_400_000)
        assert here.producer_id() == (88, 0)


# --- words ------------------------------------------------------------------------------------------------


def test_control_characters_of_an_error_are_escaped(fake: FakeBroker, here: Wire, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)
    fake.answers[PRODUCE] = lambda request: produced((0, TopicAuthorizationError.code), error_message=FORGED * 500)
    (answer,) = here.ask(make_batch([b"x"]))
    assert is_harmless(answer.words)
    assert is_harmless(answer.message)
    assert all(map(is_harmless, logged(caplog)))


def test_control_characters_of_a_host_name_are_refused(fake: FakeBroker, here: Wire, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)

    def answer(request: Request) -> Any:
        response = fake.metadata(request, brokers=[(1, fake), (2, fake)])
        response.brokers[1].host = "host" + FORGED * 200
        return response

    fake.answers[METADATA] = answer
    here.ask_until(lambda: "has an impossible broker: 2" in caplog.text)
    assert all(map(is_harmless, logged(caplog)))
    assert not here.transport.cluster().nodes
    assert_recovers(fake, here)


def log_in(fake: FakeBroker, wire: MakeWire, said: str, **settings: str) -> Wire:
    """Log in to a broker that refuses everybody in these words."""
    fake.let_in(settings["sasl_mechanism"])
    fake.answers[SASL_AUTHENTICATE] = lambda request: authenticated(SaslAuthenticationError.code, said)
    here = wire(fake.servers, security_protocol="SASL_PLAINTEXT", **settings)
    assert here.ask_until(here.transport.failure) is SaslAuthenticationError
    return here


@pytest.mark.parametrize("said", [f"invalid token {TOKEN}!", f"invalid token {TOKEN[10:50]}...", "a" * 430 + TOKEN])
def test_a_token_that_a_broker_repeats_is_hidden(
    fake: FakeBroker, wire: MakeWire, caplog: LogCapture, said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    log_in(fake, wire, said, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider="tokens.long_token")
    assert "the broker refused the login" in caplog.text
    parts = [TOKEN[begin : begin + 16] for begin in range(len(TOKEN) - 15)]
    assert not [part for part in parts if part in caplog.text]


def test_a_password_that_a_broker_repeats_is_hidden(fake: FakeBroker, wire: MakeWire, caplog: LogCapture) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"no user alice with password s3cr3t{FORGED}"
    here = log_in(fake, wire, said, sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="s3cr3t")
    assert "password [hidden]" in caplog.text
    assert all(map(is_harmless, logged(caplog)))
    # And by any other answer, later.
    fake.answers[SASL_AUTHENTICATE] = lambda request: authenticated()
    fake.answers[PRODUCE] = lambda request: produced((0, 29), error_message="not with s3cr3t")
    (answer,) = here.ask(make_batch([b"x"]))
    assert answer.words == "broker 1 says: not with [hidden]"


def test_mask_hides_parts_of_secrets() -> None:
    mask = Mask("", "short", TOKEN)
    assert mask.shown("a short one, and nothing else") == "a [hidden] one, and nothing else"
    parts = f"<{TOKEN}> and <{TOKEN[:20]}> and <{TOKEN[:15]}>"
    assert mask.shown(parts) == f"<[hidden]> and <[hidden]> and <{TOKEN[:15]}>"
    for secret in map("a longer secret, number {}".format, range(3)):
        mask.hide(secret)
        assert mask.shown(secret) == "[hidden]"
    assert TOKEN[:16] not in mask.shown(" " * 16_370 + TOKEN)


def test_mask_hides_a_secret_where_a_text_is_cut() -> None:
    """However often a broker repeats it: the copies become one word, so that the cut is shown."""
    for before in ("x" * number for number in range(1, 7)):
        assert Mask("s3cr3t").shown(before + "s3cr3t" * 5000) == before + "[hidden]"


# --- floods -----------------------------------------------------------------------------------------------


def test_what_follows_an_answer_ends_the_connection(fake: FakeBroker, here: Wire) -> None:
    """Nothing was asked that it could answer, so nothing of it is kept."""
    flood = encoded(produced((0, 0)), 12, 1) * 200_000
    fake.answers[PRODUCE] = lambda request: request.encoded(produced((0, 0))) + flood
    assert here.ask(make_batch([b"x"]))[0].error is None
    fake.answers[PRODUCE] = lambda request: produced((0, 0))
    here.until(lambda: here.ask(make_batch([b"x"]))[0].error is None)


def test_a_flood_through_tls_is_read_by_and_by(certificates: Certificates) -> None:
    """All that comes, for as long as more comes, would fill the memory before anybody looked at it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.broker.pem)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    listener = socket.create_server(("127.0.0.1", 0))
    sent = [0]

    def flood() -> None:
        with suppress(OSError), server.wrap_socket(listener.accept()[0], server_side=True) as connection:
            while True:
                sent[0] += connection.send(bytes(1 << 14))

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    channel = TlsChannel(client, (socket.AF_INET, listener.getsockname()), -1, -1, "localhost")
    with listener, selectors.DefaultSelector() as selector:
        selector.register(channel.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE)
        while channel.open():
            selector.select(1)
        selector.modify(channel.fileno(), selectors.EVENT_READ)
        most = MB + (1 << 16)
        wait_until(lambda: sent[0] > most, "more has been sent than is read at once")
        read = 0
        while read < 5 * MB:
            assert selector.select(60)  # there is more, and it says so; if only the half of a TLS record
            now = sum(map(len, channel.read()))
            assert now <= most
            read += now
        selector.unregister(channel.fileno())
        channel.close()
    thread.join()


def test_thousands_of_brokers_do_not_keep_the_sender_from_its_work(fake: FakeBroker, slab_name: str) -> None:
    """The table of brokers has those that it has connected to, and an entry for no other."""
    all_the_same = [(number, fake) for number in range(1, 6_000)]
    fake.answers[METADATA] = lambda request: fake.metadata(request, brokers=all_the_same)
    with Producer(kafka_settings(fake.servers, slab_name, metadata_max_age_ms=100)) as producer:
        producer.send("t", b"x", partition=0).get(timeout=60)
        wait_until(lambda: len(fake.of(METADATA)) >= 3)
        producer.send("t", b"x", partition=0).get(timeout=60)
        with look(slab_name) as view:
            found = brokers(view.words, view.geometry)
            assert all(broker.connections for broker in found if broker.state is not BrokerState.CONNECTING)
    wait_until_gone(slab_name)
