"""Outages: errors carry the message of network or broker, and a refused login waits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_broker import FakeBroker, Request, authenticated, produced
from faults import is_stopped
from fixture_types import Produce
from producers import kill_sender, sender_pid, wait_until

from shmaccum import Producer
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaTimeoutError,
    NetworkError,
    NotEnoughReplicasError,
    PolicyViolationError,
    ProducerClosedError,
    SaslAuthenticationError,
)
from shmaccum.observe.report import SlabReport, report
from tools.support.messages import PRODUCE, SASL_AUTHENTICATE

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
        with pytest.raises(PolicyViolationError) as caught:
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
    assert (incident.error, incident.count, incident.lasts) == (PolicyViolationError, 1, False)
    assert "not on Sundays" in incident.text
    producer.close()
    with pytest.raises(ProducerClosedError):
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
        errors = [{"batch_index": index, "batch_index_error_message": words} for index, words in named.items()]
        code = INVALID_RECORD if named else 0
        return produced((0, code), record_errors=errors, error_message="rejected" if named else None)

    fake.answers[PRODUCE] = answer
    producer = connect(linger_ms=60_000)
    futures = [producer.send("t", b"value", partition=0) for _ in range(3)]
    producer.flush(20)

    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [InvalidRecordError, type(None), InvalidRecordError]
    assert str(errors[0]).endswith("broker 1 says: no key")
    assert str(errors[2]).endswith("broker 1 says: no value")


def test_error_without_a_message_has_its_meaning(policy_violation: Refuse) -> None:
    assert policy_violation(None)[0] == f"t-0: {PolicyViolationError.meaning()}"


# --- outages ---------------------------------------------------------------------------------------------


def test_timeouts_in_an_outage_name_the_cause(fake: FakeBroker, connect: Produce) -> None:
    """Of a wait for the answer, of a wait for memory, and of the record."""
    producer = connect(delivery_timeout_ms=1000, request_timeout_ms=500, max_block_ms=200, buffer_memory=64 << 10)
    producer.send("t", b"before", partition=0).get(20)
    fake.stop()
    future = producer.send("t", b"value", partition=0)

    last_error = f"last error: NetworkError: .*127.0.0.1:{fake.port}"
    with pytest.raises(KafkaTimeoutError, match=last_error) as waiting:
        future.get(0.3)
    assert not isinstance(waiting.value, DeliveryTimeoutError)
    with pytest.raises(BufferExhaustedError, match=last_error):
        fill(producer)
    with pytest.raises(DeliveryTimeoutError, match=f"127.0.0.1:{fake.port}: Connection refused") as given_up:
        future.get(20)
    assert isinstance(given_up.value.__cause__, NetworkError)
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
    assert outage.error is NetworkError
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
    with pytest.raises(DeliveryTimeoutError, match=last_attempt) as caught:
        producer.send("t", b"value", partition=0).get(20)
    assert isinstance(caught.value.__cause__, NotEnoughReplicasError)


# --- a sender that does not run --------------------------------------------------------------------------


def test_stopped_sender_is_named_and_blames_no_broker(fake: FakeBroker, connect: Produce) -> None:
    """It reads no answers, so how long it has been waiting for one says nothing of the broker."""
    answered = threading.Event()

    def answer(request: Request) -> object:
        answered.wait()
        return produced((0, 0))

    fake.answers[PRODUCE] = answer
    producer = connect(max_block_ms=300, buffer_memory=64 << 10)
    producer.send("t", b"before", partition=0)
    wait_until(lambda: any(broker.silence() for broker in seen(producer).brokers), "the broker is late")
    pid = sender_pid(producer)
    assert not seen(producer).sender.stopped
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(pid), "it is stopped")
        sender = seen(producer).sender
        assert (sender.alive, sender.stopped) == (True, True)
        said = f"; the sender, process {pid} is stopped: it has not run for "
        with pytest.raises(BufferExhaustedError, match=said) as caught:
            fill(producer)
        assert "has not answered" not in str(caught.value)
    finally:
        answered.set()
        os.kill(pid, signal.SIGCONT)
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
    with pytest.raises(DeliveryTimeoutError, match=said) as caught:
        producer.send("t", b"value", partition=0).get(20)
    assert PASSWORD not in str(caught.value)
    assert isinstance(caught.value.__cause__, NetworkError | SaslAuthenticationError)
    with pytest.raises(KafkaTimeoutError, match=said):
        producer.send("another", b"value")


def test_login_that_never_succeeded_fails_at_once(logins: Logins, connect: Produce) -> None:
    logins.welcome = False
    producer = connect(**LOGIN)
    said = r"refused the login: who has the password \[hidden\]\?"
    with pytest.raises(SaslAuthenticationError, match=said) as caught:
        producer.send("t", b"value")
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in log_of(producer)
