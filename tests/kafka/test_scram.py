"""Logins by SCRAM: a broker that does not know the password, or asks for what is not safe, gets nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from fake_broker import FakeBroker, Request, authenticated
from fixture_types import LogCapture
from wires import MakeWire

from shmaccum.cluster import TopicPartition
from shmaccum.errors import SaslAuthenticationError
from tools.support.messages import SASL_AUTHENTICATE

SALT = b"salt of the broker"


class ScramBroker:
    """The broker's half of SCRAM-SHA-256, as RFC 5802 has it.

    Attributes:
        iterations: The number it asks for, as text.
        first, final: Replace its first or last message.
        nonce: Puts its own nonce behind, or instead of, the client's.
        password: The one it knows.
        proofs: Whether each login's proof was right.
    """

    def __init__(self, fake: FakeBroker) -> None:
        self.iterations = "4096"
        self.first: bytes | None = None
        self.final: bytes | None = None
        self.nonce = "{}brokers"
        self.password = b"alice-secret"
        self.proofs: list[bool] = []
        self._said = ""
        fake.let_in("SCRAM-SHA-256")
        fake.answers[SASL_AUTHENTICATE] = self.answer

    def answer(self, request: Request) -> Any:
        text = request.asked.auth_bytes.decode()
        data = self._first(text) if text.startswith("n,,") else self._final(text)
        return authenticated(data=data)

    def _first(self, text: str) -> bytes:
        bare = text.removeprefix("n,,")
        salt = base64.b64encode(SALT).decode()
        answer = f"r={self.nonce.format(bare.split(',r=')[1])},s={salt},i={self.iterations}"
        self._said = f"{bare},{answer}"
        return self.first if self.first is not None else answer.encode()

    def _final(self, text: str) -> bytes:
        without_proof, proof = text.rsplit(",p=", 1)
        said = f"{self._said},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", self.password, SALT, int(self.iterations))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
        self.proofs.append(bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) == client_key)
        own = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
        return self.final if self.final is not None else b"v=" + base64.b64encode(own)


Refused = Callable[..., str]


@pytest.fixture
def broker(fake: FakeBroker) -> ScramBroker:
    return ScramBroker(fake)


LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "al=i,ce",
    "sasl_password": "alice-secret",
}


@pytest.mark.parametrize("iterations", ["4096", "16384"])
def test_lets_us_in(fake: FakeBroker, broker: ScramBroker, wire: MakeWire, iterations: str) -> None:
    broker.iterations = iterations
    wire(fake.servers, **LOGIN).leader(TopicPartition("t", 0))
    assert set(broker.proofs) == {True}


@pytest.fixture
def refused(broker: ScramBroker, fake: FakeBroker, wire: MakeWire, caplog: LogCapture) -> Refused:
    """Return a function that logs in to the broker, which changes in some ways; it returns what is logged."""

    def log_in(**changes: Any) -> str:
        vars(broker).update(changes)
        here = wire(fake.servers, **LOGIN)
        assert here.ask_until(here.transport.failure) is SaslAuthenticationError
        assert "alice-secret" not in caplog.text
        return caplog.text

    return log_in


@pytest.mark.parametrize("iterations", ["4095", "1", "0", "-5", "1000001", "2147483647", "9" * 4000])
def test_unsafe_iterations_are_refused(broker: ScramBroker, refused: Refused, iterations: str) -> None:
    """With fewer, a false broker could guess the password; more keep a processor busy."""
    assert f"asks for {iterations[:20]} iterations of SCRAM-SHA-256, not 4096 to 1000000" in refused(
        iterations=iterations
    )
    assert broker.proofs == []


@pytest.mark.parametrize("final", [None, b"v=" + base64.b64encode(bytes(32)), b"v="])
def test_a_wrong_signature_is_called_that(refused: Refused, final: bytes | None) -> None:
    """A false broker accepts any login, and cannot prove that it knows the password."""
    text = refused(final=final, password=b"guessed")
    assert "the broker's SCRAM-SHA-256 signature is wrong" in text
    assert "refused" not in text


@pytest.mark.parametrize(
    ("first", "final"),
    [
        (b"", None),
        (b"\xff\xfe", None),
        (b"r=x", None),
        (b"no part", None),
        (b"r=x,s=?,i=4096", None),
        (b"r=x,s=YQ==,i=many", None),
        (None, b""),
        (None, b"v=?"),
        (None, b"alice-secret"),
    ],
)
def test_malformed_message_is_refused(refused: Refused, first: bytes | None, final: bytes | None) -> None:
    assert "the broker's SCRAM-SHA-256 message is malformed" in refused(first=first, final=final)


@pytest.mark.parametrize("nonce", ["brokers", "{}"])
def test_a_nonce_that_is_not_both_sides(refused: Refused, nonce: str) -> None:
    assert "its nonce does not begin with our nonce" in refused(nonce=nonce)


def test_a_proof_that_is_refused(refused: Refused) -> None:
    assert "the broker refused our SCRAM-SHA-256 proof" in refused(final=b"e=invalid-proof")
