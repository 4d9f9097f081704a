"""The SASL mechanisms PLAIN, OAUTHBEARER and SCRAM; and by the library gssapi, GSSAPI (RFC 4752).

A mechanism is our half of one login. `auth_bytes` returns the next message, `receive` handles the broker's answer.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

from shmaccum.errors import SaslAuthenticationError, printable

LEAST_ITERATIONS: Final = 4096
"""Of SCRAM: with fewer, a false broker could guess the password (RFC 7677; ``ScramMechanism.minIterations``)."""
MOST_ITERATIONS: Final = 1_000_000
"""Of SCRAM: about a second of processor time. Kafka's brokers keep 16,384 at most; librdkafka has this limit too."""
_NONCE_BYTES: Final = 24
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING: Final = "n,,"


class Mechanism:
    """One login."""

    is_done = False
    """Whether the broker has accepted the login."""

    def auth_bytes(self) -> bytes:
        """Return the next message to send."""
        raise NotImplementedError

    def receive(self, auth_bytes: bytes) -> None:
        """Handle the broker's answer."""
        raise NotImplementedError


class Plain(Mechanism):
    """User and password in clear text (RFC 4616)."""

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._message

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`."""
        self.is_done = True


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
        self.is_done = not auth_bytes


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
        except (KeyError, ValueError):
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
        self.is_done = True

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


# --- Kerberos --------------------------------------------------------------------------------------

# Every method can wait for a key distribution center (KDC), so each runs as a background call.
#
# With a keytab, the library gets the first ticket (TGT) into a cache in this process's memory, which all its logins
# share. From half of the ticket's lifetime on, a login gets a new ticket. If that fails, it uses the old one until that
# expires; the library retries a failed refresh after 30 s.

_NO_LAYER: Final = 1
"""The security layer of RFC 4752 that Kafka has: no protection after the login. TLS protects."""
_LAYERS_SIZE: Final = 4
"""Bytes of the broker's offer: its security layers, and the largest message."""
_KEYTAB_MAGIC: Final = 5


def check_keytab(path: str) -> None:
    """Check that a file begins as a keytab. Raises OSError, ValueError: it cannot be read, or is no keytab."""
    with open(path, "rb") as file:
        beginning = file.read(2)
    if len(beginning) < 2 or beginning[0] != _KEYTAB_MAGIC:
        raise ValueError("the file is no keytab")


class Kerberos(Mechanism):
    """Kerberos, one login: with a keytab, or with the credential cache, whose principal is the default.

    Raises SaslAuthenticationError: there is no ticket; says why.
    """

    def __init__(self, host: str, service_name: str, principal: str = "", keytab: str = "") -> None:
        import gssapi  # here, on the background thread, since loading it takes long

        if keytab:
            self._who = f"{principal} by sasl.kerberos.keytab {keytab!r}"
        else:
            self._who = f"{principal or 'the user'} by the credential cache"
        self._with_whom = f"{service_name}@{host}"
        self._has_agreed = False
        with self._explained(gssapi):
            credentials = _credentials(gssapi, principal, keytab) if principal else None
            target = gssapi.Name(self._with_whom, gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=target.canonicalize(gssapi.MechType.kerberos),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication,  # the broker proves its identity
                usage="initiate",
            )
            self._next = self._context.step() or b""

    def auth_bytes(self) -> bytes:
        """See `Mechanism`."""
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        """See `Mechanism`.

        Raises SaslAuthenticationError: the broker fails to prove its identity, or demands a security layer.
        """
        import gssapi

        if self._has_agreed:
            self.is_done = True
            return
        with self._explained(gssapi):
            if self._context.complete:
                self._next = self._agree(self._context.unwrap(auth_bytes).message)
                self._has_agreed = True
            else:
                self._next = self._context.step(auth_bytes) or b""

    def _agree(self, layers: bytes) -> bytes:
        """Return the answer to the broker's offer: no security layer, and our name, as Java's client sends it."""
        if len(layers) != _LAYERS_SIZE or not layers[0] & _NO_LAYER:
            raise SaslAuthenticationError(f"{self._with_whom} demands a security layer of GSSAPI: Kafka has none")
        # Without a security layer the message size is 0 (RFC 4752, 3.1).
        answer = bytes([_NO_LAYER, 0, 0, 0]) + str(self._context.initiator_name).encode()
        message: bytes = self._context.wrap(answer, False).message
        return message

    @contextlib.contextmanager
    def _explained(self, gssapi: Any) -> Iterator[None]:
        """Turn the library's errors into one that names principal, service and reason."""
        try:
            yield
        except gssapi.exceptions.GSSError as error:
            # The minor status first: the major one is most often "unspecified, see the minor one".
            told = error.get_all_statuses(error.min_code, False) if error.min_code else []
            told = told or error.get_all_statuses(error.maj_code, True)
            raise SaslAuthenticationError(
                printable(f"Kerberos login of {self._who} to {self._with_whom} failed: {'; '.join(told)}")
            ) from None


def _credentials(gssapi: Any, principal: str, keytab: str) -> Any:
    """Return the credentials of a principal, with a valid ticket if there is a keytab."""
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    if not keytab:
        return gssapi.Credentials(name=name, usage="initiate")
    # A server's credentials report what the keytab lacks; a client's only "No credentials cache found".
    gssapi.Credentials(name=name, usage="accept", store={"keytab": keytab})
    # A cache in memory: tickets of the keytab must not replace those in the user's own cache.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:{principal} by {keytab}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)
