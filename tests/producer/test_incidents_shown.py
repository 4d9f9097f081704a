"""Outages: errors carry the message of network or broker, timeouts name their limit, and a refused login waits."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, Request, authenticated, produced, producer_id_of, silent
from fixture_types import MonkeyPatch, Produce, Settings
from producers import kill_sender, sender_pid, stopped_sender, wait_until

from shmaccum import AsyncProducer, Producer, ProducerConfig, errors
from shmaccum.observe.report import SlabReport, report
from shmaccum.observe.verdict import verdict
from shmaccum.transactions.batch_committer import BatchCommitter
from shmaccum.transactions.broker_client import BrokerClient
from shmaccum.transactions.writer_id import Writer
from tools.support.messages import API_VERSIONS, INIT_PRODUCER_ID, PRODUCE, SASL_AUTHENTICATE

REFUSED = 58
POLICY_VIOLATION, INVALID_RECORD, NOT_ENOUGH_REPLICAS = 44, 87, 19
PASSWORD = "very-secret"

Refuse = Callable[[str | None], tuple[str, Producer]]


@pytest.fixture
def policy_violation(fake: FakeBroker, connect: Produce) -> Refuse:
    """Return a function: the text of the error when the broker refuses a record by a policy with a message."""

    def refuse(message: str | None) -> tuple[str, Producer]:
        fake.answers[PRODUCE] = lambda request: produced((0, POLICY_VIOLATION), error_message=message)
        producer = connect()
        with pytest.raises(errors.PolicyViolationError) as caught:
            producer.send("t", b"value", partition=0).get(20)
        return str(caught.value), producer

    return refuse


def fill(producer: Producer) -> None:
    """Send more than the slab of four slots holds."""
    for _ in range(10):
        producer.send("t", bytes(15_000), partition=0)


def log_of(producer: Producer) -> str:
    return Path(seen(producer).log).read_text(encoding="utf-8")


def seen(producer: Producer) -> SlabReport:
    return report(producer._slab.name)


# --- the broker's own words ------------------------------------------------------------------------------


def test_policy_message_reaches_the_error_and_the_incidents(policy_violation: Refuse) -> None:
    text, producer = policy_violation("not on Sundays")
    assert text.startswith("t-0: ")
    assert text.endswith("broker 1 says: not on Sundays")
    incident = producer.incidents.current()
    assert incident is not None
    assert (incident.error, incident.count, incident.lasts) == (errors.PolicyViolationError, 1, False)
    assert "not on Sundays" in incident.text
    producer.close()
    with pytest.raises(errors.ProducerClosedError):
        producer.incidents  # noqa: B018


def test_hostile_message_is_escaped_and_cut(policy_violation: Refuse) -> None:
    hostile = "\x1b]0;owned\x07\n2030-01-01 INFO all is well " + "\U0001f600" * 10_000
    text, producer = policy_violation(hostile)
    assert text.isprintable()
    assert r"says: \x1b]0;owned\x07\n2030" in text
    assert text.endswith("...")
    assert len(text.encode()) < 1024
    assert "\x1b" not in log_of(producer)
    assert "\n2030" not in log_of(producer)


def test_each_record_gets_its_own_message(fake: FakeBroker, connect: Produce) -> None:
    """KIP-467: of three records, the broker names two, by different words."""
    answers = iter([{0: "no key", 2: "no value"}, {}])  # to all three; to the one between these

    def answer(request: Request) -> Any:
        named = next(answers)
        told = [{"batch_index": index, "batch_index_error_message": words} for index, words in named.items()]
        code = INVALID_RECORD if named else 0
        return produced((0, code), record_errors=told, error_message="rejected" if named else None)

    fake.answers[PRODUCE] = answer
    producer = connect(linger_ms=60_000)
    futures = [producer.send("t", b"value", partition=0) for _ in range(3)]
    producer.flush(20)

    found = [future.exception() for future in futures]
    assert [type(error) for error in found] == [errors.InvalidRecordError, type(None), errors.InvalidRecordError]
    assert str(found[0]).endswith("broker 1 says: no key")
    assert str(found[2]).endswith("broker 1 says: no value")


def test_a_refused_producer_id_names_the_right_that_is_missing(fake: FakeBroker, connect: Produce) -> None:
    fake.answers[INIT_PRODUCER_ID] = lambda request: producer_id_of(9, errors.ClusterAuthorizationError.code)
    with pytest.raises(errors.ClusterAuthorizationError, match="grant IDEMPOTENT_WRITE on it"):
        connect().send("t", b"value", partition=0).get(20)


def test_error_without_a_message_has_its_meaning(policy_violation: Refuse) -> None:
    assert policy_violation(None)[0] == f"t-0: {errors.PolicyViolationError.meaning()}"


# --- outages ---------------------------------------------------------------------------------------------


def test_timeouts_in_an_outage_name_the_cause(fake: FakeBroker, connect: Produce) -> None:
    """Of a wait for the answer, of a wait for memory, and of the record."""
    producer = connect(delivery_timeout_ms=1000, request_timeout_ms=500, max_block_ms=200, buffer_memory=64 << 10)
    producer.send("t", b"before", partition=0).get(20)
    fake.stop()
    future = producer.send("t", b"value", partition=0)

    last_error = f"last error: NetworkError: .*127.0.0.1:{fake.port}"
    with pytest.raises(errors.KafkaTimeoutError, match=last_error) as waiting:
        future.get(0.3)
    assert not isinstance(waiting.value, errors.DeliveryTimeoutError)
    with pytest.raises(errors.BufferExhaustedError, match=last_error):
        fill(producer)
    with pytest.raises(errors.DeliveryTimeoutError, match=f"127.0.0.1:{fake.port}: Connection refused") as given_up:
        future.get(20)
    assert isinstance(given_up.value.__cause__, errors.NetworkError)
    assert " (since 20" in str(given_up.value)


def test_status_shows_an_outage_and_its_end(slab_name: str, connect: Produce, fake: FakeBroker) -> None:
    producer = connect()
    producer.send("t", b"before", partition=0).get(20)
    assert not any(incident.lasts for incident in seen(producer).incidents)
    began_ms = time.time() * 1000 - 1
    port = fake.port
    fake.stop()
    future = producer.send("t", b"value", partition=0)
    wait_until(lambda: any(each.lasts for each in seen(producer).incidents), "the outage is seen")
    wait_until(lambda: seen(producer).incidents[0].last_ms > began_ms + 200, "it goes on")
    (outage,) = [each for each in seen(producer).incidents if each.lasts and "broker 1 " in each.text]
    assert outage.error is errors.NetworkError
    assert outage.text == f"connection to broker 1 at 127.0.0.1:{port}: Connection refused"
    assert began_ms < outage.first_ms < outage.last_ms - 100

    with FakeBroker(port):
        future.get(20)
        assert not any(each.lasts for each in seen(producer).incidents)
        assert seen(producer).incidents[0].text.startswith("connection to broker ")


def test_refused_attempt_is_the_cause_of_the_timeout(fake: FakeBroker, connect: Produce) -> None:
    fake.answers[PRODUCE] = lambda request: produced((0, NOT_ENOUGH_REPLICAS), error_message="1 of 2")
    producer = connect(delivery_timeout_ms=500, request_timeout_ms=400, retry_backoff_ms=10_000)
    last_attempt = "its last attempt: NotEnoughReplicasError: broker 1 says: 1 of 2"
    with pytest.raises(errors.DeliveryTimeoutError, match=last_attempt) as caught:
        producer.send("t", b"value", partition=0).get(20)
    assert isinstance(caught.value.__cause__, errors.NotEnoughReplicasError)


# --- a sender that does not run --------------------------------------------------------------------------


def test_stopped_sender_is_named_and_blames_no_broker(fake: FakeBroker, connect: Produce) -> None:
    """It reads no answers, so how long it has been waiting for one says nothing of the broker."""
    answered = threading.Event()

    def answer(request: Request) -> object:
        answered.wait(60)
        return produced((0, 0))

    fake.answers[PRODUCE] = answer
    producer = connect(max_block_ms=300, buffer_memory=64 << 10)
    producer.send("t", b"before", partition=0)
    wait_until(lambda: any(broker.silence() for broker in seen(producer).brokers), "the broker is late")
    assert not seen(producer).sender.stopped
    with stopped_sender(producer):
        sender = seen(producer).sender
        assert (sender.alive, sender.stopped) == (True, True)
        said = f"; the sender, process {sender_pid(producer)} is stopped: it has not run for "
        with pytest.raises(errors.BufferExhaustedError, match=said) as caught:
            fill(producer)
        assert "has not answered" not in str(caught.value)
        answered.set()
    producer.flush(20)
    assert not seen(producer).sender.stopped


# --- a refused login -------------------------------------------------------------------------------------


class Logins:
    """What a broker says to those who log in by PLAIN: whether they are welcome; it counts those it refused."""

    def __init__(self, fake: FakeBroker) -> None:
        self.welcome = True
        self.refused = 0
        self._broker = fake
        fake.let_in("PLAIN")
        fake.answers[SASL_AUTHENTICATE] = self._answer

    def refuse(self) -> None:
        """Refuse all logins from now on, and end all connections."""
        self.welcome = False
        self._broker.cut()

    def _answer(self, request: Request) -> Any:
        code, words = (0, None) if self.welcome else (REFUSED, f"who has the password {PASSWORD}?")
        self.refused += bool(code)
        return authenticated(code, words)


LOGIN: dict[str, object] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": PASSWORD,
}


@pytest.fixture
def logins(fake: FakeBroker) -> Logins:
    return Logins(fake)


def test_records_wait_while_a_once_successful_login_is_refused(logins: Logins, connect: Produce) -> None:
    """Also under the next sender."""
    producer = connect(**LOGIN)
    producer.send("t", b"before", partition=0).get(20)
    logins.refuse()
    futures = [producer.send("t", b"value", partition=number % 2) for number in range(20)]
    wait_until(lambda: logins.refused >= 3, "the login is refused, again and again")
    kill_sender(producer)
    before = logins.refused
    futures.append(producer.send("t", b"value", partition=0))
    wait_until(lambda: logins.refused >= before + 3 and producer._slab.has_sender(), "the next sender is refused")
    assert not any(future.is_done for future in futures)
    logins.welcome = True
    assert [future.get(20).topic for future in futures] == ["t"] * 21


def test_refused_login_is_the_cause_of_timeouts(logins: Logins, connect: Produce) -> None:
    """Of a record's, and of a wait for metadata."""
    producer = connect(delivery_timeout_ms=600, request_timeout_ms=300, max_block_ms=400, **LOGIN)
    producer.send("t", b"before", partition=0).get(20)
    logins.refuse()
    said = r"SaslAuthenticationError: .*the broker refused the login: who"
    with pytest.raises(errors.DeliveryTimeoutError, match=said) as caught:
        producer.send("t", b"value", partition=0).get(20)
    assert PASSWORD not in str(caught.value)
    assert isinstance(caught.value.__cause__, errors.NetworkError | errors.SaslAuthenticationError)
    with pytest.raises(errors.KafkaTimeoutError, match=said):
        producer.send("another", b"value")


def test_login_that_never_succeeded_fails_at_once(logins: Logins, connect: Produce) -> None:
    logins.welcome = False
    producer = connect(**LOGIN)
    said = r"refused the login: who has the password \[hidden\]\?"
    with pytest.raises(errors.SaslAuthenticationError, match=said) as caught:
        producer.send("t", b"value")
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in log_of(producer)


# --- timeouts: the configured limit, and what the cluster does meanwhile -----------------------------------


MAX_BLOCK_MS = 400
CONFIGURED = f"within the configured max blocking time {MAX_BLOCK_MS} ms"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return the address of one that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_columns_and_calls_that_wait_for_memory_name_the_configured_time(
    fake: FakeBroker, kafka_settings: Settings, connect: Produce
) -> None:
    """Also the calls of an event loop that stand in line."""
    fake.answers[PRODUCE] = silent
    limits = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1500, "max_block_ms": MAX_BLOCK_MS}
    producer = connect(buffer_memory=64 << 10, **limits)
    with pytest.raises(errors.BufferExhaustedError, match=CONFIGURED):
        producer.send_batch("t", pa.record_batch({"value": [bytes(15_000)] * 20, "partition": [0] * 20}))

    async def flood() -> list[object]:
        settings = kafka_settings(bootstrap_servers=fake.servers, buffer_memory=64 << 10, **limits)
        async with AsyncProducer(settings) as producer:
            sends = (producer.send("t", bytes(15_000), partition=0) for _ in range(40))
            return await asyncio.gather(*sends, return_exceptions=True)

    raised = [each for each in asyncio.run(flood()) if isinstance(each, BaseException)]
    assert len(raised) > 30
    assert [each for each in raised if CONFIGURED not in str(each)] == []


def test_silent_server_is_the_cause_of_a_timeout(
    silent_server: str, kafka_settings: Settings, make_producer: Produce
) -> None:
    """Of a sender's request, and of one to the coordinator of transactions, which the producer asks itself."""
    said = rf"broker {silent_server} has not answered our first request for .*Kafka listener"
    settings = kafka_settings(bootstrap_servers=silent_server, max_block_ms=1000)
    with pytest.raises(errors.KafkaTimeoutError, match=said):
        make_producer(settings).send("t", b"v")
    with pytest.raises(errors.KafkaTimeoutError, match=said):
        make_producer(settings | {"transactional.id": "a"}).init_transactions()


def test_login_that_waits_for_its_token_blames_no_broker(
    fake: FakeBroker, connect: Produce, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """Neither the sender's login, nor that of a transaction, which the producer makes itself."""
    monkeypatch.setenv("TOKENS", str(tmp_path))
    fake.let_in("OAUTHBEARER")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    login["sasl_oauthbearer_token_provider"] = "tokens.token_of_a_file"
    producer = connect(max_block_ms=1500, **login)
    said = rf"the login at broker {fake.servers} has been waiting for a token or ticket for 1\."
    with pytest.raises(errors.KafkaTimeoutError, match=said) as caught:
        producer.send("t", b"v")
    assert "Kafka listener" not in str(caught.value)
    assert verdict(seen(producer)).startswith(f"the login at broker {fake.servers} has been waiting for a token")
    with pytest.raises(errors.KafkaTimeoutError) as caught:
        connect(max_block_ms=1000, transactional_id="a", **login).init_transactions()
    assert "has not answered" not in str(caught.value)
    (tmp_path / "may-return").touch()
    producer.send("t", b"v").get(20)
    assert not producer._slab.trouble()


def test_web_server_is_the_cause_of_a_metadata_timeout(fake: FakeBroker, connect: Produce) -> None:
    fake.answers[API_VERSIONS] = lambda request: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with pytest.raises(errors.KafkaTimeoutError, match="not a Kafka broker: it sent HTTP"):
        connect(max_block_ms=1000).send("t", b"v")


def test_frozen_broker_is_the_cause_of_a_timeout(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(max_block_ms=1000)
    producer.send("t", b"v", partition=0).get(20)
    fake.pause()
    future = producer.send("t", b"v", partition=0)
    wait_until(lambda: "has not answered" in producer._slab.trouble(), "it is seen")
    said = rf"broker 1 at {fake.servers} has not answered for "
    with pytest.raises(errors.KafkaTimeoutError, match=said):
        future.get(0.1)
    with pytest.raises(errors.KafkaTimeoutError, match=said):
        producer.flush(0.1)
    fake.resume()
    future.get(20)
    assert "has not answered" not in producer._slab.trouble()


def test_broker_that_is_down_is_the_cause_of_a_transactions_timeout(fake: FakeBroker, connect: Produce) -> None:
    """Also where a driver of exactly-once writing asks."""
    producer = connect(transactional_id="a", max_block_ms=700)
    config = ProducerConfig.parse({"bootstrap.servers": fake.servers, "max.block.ms": 700})
    fake.stop()
    said = rf"NetworkError: connection to broker {fake.servers}: Connection refused"
    with pytest.raises(errors.KafkaTimeoutError, match=said) as caught:
        producer.init_transactions()
    assert isinstance(caught.value.__cause__, errors.KafkaTimeoutError | errors.NetworkError)
    with BrokerClient(config) as client, pytest.raises(errors.KafkaTimeoutError, match=said):
        BatchCommitter(client, config, Writer("a", "a-")).plan()


# --- what an error code of a Produce answer means, as in Kafka's Sender -------------------------------

RETRIABLE = (41, 70, 71, 78, 80, 83, 84, 88, 106, 122, 123, 133)
"""Codes of other requests, which a producer meets in a broken cluster only."""
FATAL = (errors.InvalidPidMappingError, errors.TransactionalIdAuthorizationError)


def answer_with(fake: FakeBroker, *codes: int) -> None:
    """Answer the next batches of partition 0 with these codes, and store all that follow."""
    left = list(codes)

    def answer(request: Request) -> object:
        return produced((0, left.pop(0) if left else 0))

    fake.answers[PRODUCE] = answer


def test_batch_is_sent_again_after_each_retriable_error(fake: FakeBroker, connect: Produce) -> None:
    answer_with(fake, *RETRIABLE)
    producer = connect(retry_backoff_max_ms=1)
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
    assert len(fake.of(PRODUCE)) == len(RETRIABLE) + 1


def test_retriable_error_is_that_of_the_batch_when_retries_end(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(retries=0)
    for code in RETRIABLE:
        answer_with(fake, code)
        error = producer.send("t", b"value", partition=0).exception(20)
        assert type(error) is errors.error_for_code(code)
        assert error.retriable


@pytest.mark.parametrize("error", FATAL)
def test_idempotent_producer_can_only_be_closed(
    fake: FakeBroker, connect: Produce, error: type[errors.KafkaError]
) -> None:
    producer = connect()
    answer_with(fake, error.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is error
    for _ in range(2):
        with pytest.raises(error, match="close the producer"):
            producer.send("t", b"value", partition=0)
    with pytest.raises(error, match="close the producer"):
        producer.send_batch("t", pa.record_batch({"value": [b"value"]}))
    assert len(fake.of(PRODUCE)) == 1
    producer.close()
    assert connect().send("t", b"value", partition=0).get(20).offset == 100


@pytest.mark.parametrize(
    ("error", "idempotence"), [*((each, False) for each in FATAL), (errors.PolicyViolationError, True)]
)
def test_other_errors_fail_one_batch(
    fake: FakeBroker, connect: Produce, error: type[errors.KafkaError], idempotence: bool
) -> None:
    producer = connect(enable_idempotence=idempotence)
    answer_with(fake, error.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is error
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
