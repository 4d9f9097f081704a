"""The SASL mechanisms that need no library: PLAIN, OAUTHBEARER, SCRAM.

A mechanism is our half of one login. `auth_bytes` returns the next message, `receive` handles the broker's answer.
GSSAPI is in `shmaccum.kafka.kerberos`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from shmaccum.errors import SaslAuthenticationError

LEAST_ITERATIONS: Final = 4096
"""Of SCRAM: with fewer, a false broker could guess the password (RFC 7677; ``ScramMechanism.minIterations``)."""
MOST_ITERATIONS: Final = 1_000_000
"""Of SCRAM: about a second of processor time. Kafka's brokers keep 16,384 at most; librdkafka has this limit too."""
_NONCE_BYTES: Final = 24
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING: Final = "n,,"


class Mechanism:
    """One login."""

    _is_done = False

    def auth_bytes(self) -> bytes:
        """Return the next message to send."""
        raise NotImplementedError

    def receive(self, auth_bytes: bytes) -> None:
        """Handle the broker's answer."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Return whether the broker has accepted the login."""
        return self._is_done


class Plain(Mechanism):
    """User and password in clear text (RFC 4616)."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._message

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`."""
        self._is_done = True


class OAuthBearer(Mechanism):
    """A token (RFC 7628); the function that returns it can block."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._was_refused = False

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        if self._was_refused:
            return b"\x01"  # the broker has sent its reason; on this it ends the login with an error
        return f"n,,\x01auth=Bearer {self._token()}\x01\x01".encode()

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`."""
        if auth_bytes and self._was_refused:
            raise SaslAuthenticationError("the broker refused the token of sasl.oauthbearer.token.provider")
        self._was_refused = bool(auth_bytes)
        self._is_done = not auth_bytes


class Scram(Mechanism):
    """Proves to each side that the other knows the password, without sending it (RFC 5802).

    With ``is_token``, user and password are id and HMAC of a delegation token (KIP-48, ``ScramExtensions``).
    """

    def __init__(self, name: str, username: str, password: str, *, is_token: bool = False) -> None:
        self._name = name
        self._hash = _HASHES[name]
        self._password = password.encode()
        self._nonce = secrets.token_urlsafe(_NONCE_BYTES)
        # "=" and "," separate the parts of a message, so a name escapes them (RFC 5802, 5.1).
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={self._nonce}" + ",tokenauth=true" * is_token
        self._next = (_NO_CHANNEL_BINDING + self._first).encode()
        self._signature = b""

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`.

        Raises:
            SaslAuthenticationError: the broker does not know the password, or demands too few or too many iterations.
        """
        try:
            text = auth_bytes.decode()
            parts = dict(part.split("=", 1) for part in text.split(","))
            if "e" in parts:
                raise SaslAuthenticationError(f"the broker refused our {self._name} proof; check user and password")
            if self._signature:
                self._check_signature(base64.b64decode(parts["v"], validate=True))
            else:
                self._answer(text, parts["r"], base64.b64decode(parts["s"], validate=True), int(parts["i"]))
        except (KeyError, ValueError, binascii.Error):
            # Without the message, which can hold anything, secrets included.
            raise SaslAuthenticationError(f"the broker's {self._name} message is malformed") from None

    def _answer(self, first_of_broker: str, nonce: str, salt: bytes, iterations: int) -> None:
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslAuthenticationError(
                f"the broker's first {self._name} message does not answer ours: its nonce does not begin with our nonce"
            )
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            # Cut, since a number can have thousands of digits.
            raise SaslAuthenticationError(
                f"the broker asks for {str(iterations)[:20]} iterations of {self._name}, not {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS}: fewer expose the password, more take too long; set the user's password again "
                "there (kafka-configs.sh --alter --add-config)"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        said = f"{self._first},{first_of_broker},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        client_signature = self._hmac(hashlib.new(self._hash, client_key).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        self._next = f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, signature: bytes) -> None:
        if not hmac.compare_digest(signature, self._signature):
            raise SaslAuthenticationError(
                f"the broker's {self._name} signature is wrong: it accepted the login without knowing the password, so "
                "it is not the right broker"
            )
        self._is_done = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)
