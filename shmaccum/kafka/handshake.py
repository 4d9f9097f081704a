"""The handshake of a new connection: ApiVersions, then the SASL login.

Conversations are generators, without waits or sockets. They yield a `Call` and receive the frame of its answer. For
work that can block, they yield a `Task` and receive its result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from shmaccum import errors
from shmaccum.abi import VERSION
from shmaccum.errors import error_for_code
from shmaccum.kafka.codec import decode
from shmaccum.kafka.masking import Mask
from shmaccum.kafka.messages import API_VERSIONS, INIT_PRODUCER_ID, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from shmaccum.kafka.schema import NEVER, ApiMessage

PRODUCE: Final = 0
"""The key of Produce requests, which are no messages of the codec: it would copy the batches."""
OLDEST_PRODUCE: Final = 7
"""Of Kafka 2.1, the oldest brokers that Kafka 4's clients support (KIP-896), and the first with zstd."""
NEWEST_PRODUCE: Final = 12
"""Version 13 names topics by id."""

_MISSING: Final = {INIT_PRODUCER_ID.api.name: "set enable.idempotence to false"}
"""Request -> what to do if a broker does not support it."""
_NAMED_VERSION: Final = 3
"""The first version of ApiVersions that names the client (KIP-511)."""
_UNSUPPORTED_VERSION: Final = errors.UnsupportedVersionError.code
SMALL_ANSWER: Final = 64 * 1024
"""Most bytes of an answer of a few fields: about 9,000 kinds of requests, of which Kafka 4 has 90."""
_SASL_ANSWER: Final = 512 * 1024
"""Most bytes of a SASL answer: as large as brokers take requests (``sasl.server.max.receive.size``)."""
_TAKES_LONG: Final = {"GSSAPI": "Kerberos", "OAUTHBEARER": "sasl.oauthbearer.token.provider"}
"""Mechanism -> what its login waits for. All brokers share it, and one thread at a time calls it."""
_ERROR_CODE: Final = struct.Struct(">4xh")
"""The error code of an ApiVersions response, in every version: behind the correlation id."""


class Call(NamedTuple):
    """A request, and the version to send it in."""

    request: ApiMessage
    version: int
    largest_answer: int = SMALL_ANSWER
    """Most bytes of its answer."""


class Task(NamedTuple):
    """A step that can block; another thread runs it."""

    key: str
    """Tasks of the same key run one after the other."""
    what: str
    """What it waits for; named in the error if it takes too long."""
    call: Callable[[], Any]
    """Returns the value that the conversation receives, or raises a KafkaError."""


class BrokerVersions(NamedTuple):
    """The request versions that a broker supports, and the cluster's finalized features."""

    ranges: Mapping[int, tuple[int, int]]
    """API key -> oldest and newest version."""
    features: Mapping[str, int] = MappingProxyType({})
    """Name -> level (KIP-584)."""

    def best(self, name: str, key: int, oldest: int, newest: int) -> int:
        """Return the newest version that both sides support. Raises UnsupportedVersionError: there is none."""
        of_broker = self.ranges.get(key)
        if of_broker is None:
            advice = _MISSING.get(name, "bootstrap.servers may name a controller")
            raise errors.UnsupportedVersionError(f"no support for {name} requests: {advice}")
        best = min(newest, of_broker[1])
        if best < max(oldest, of_broker[0]):
            raise errors.UnsupportedVersionError(
                f"the broker supports {name} requests of version {of_broker[0]} to {of_broker[1]}, and shmaccum "
                f"{oldest} to {newest}: use brokers of Kafka 2.1 or later"
            )
        return best

    def call(
        self, request: ApiMessage, oldest: int = 0, newest: int = NEVER, largest_answer: int = SMALL_ANSWER
    ) -> Call:
        """Return the request with the newest version that both sides support, within these limits (see `best`)."""
        kind = request.type.api
        version = self.best(kind.name, kind.key, max(oldest, kind.oldest), min(newest, kind.newest))
        return Call(request, version, largest_answer)


Conversation: TypeAlias = Generator[Call | Task, Any, None]


class Handshake:
    """The conversations of one connection, and their results.

    Args:
        mechanism: Makes the SASL mechanism for a host (see `sasl_mechanism`); None without SASL.
        is_idempotent: Whether the broker must give producer ids.

    Attributes:
        versions: What the broker supports; set by `introduce`.
        produce_version: The version of Produce requests; set by `introduce`.
        session_lifetime_ms: How long the login is valid, 0 for ever (KIP-368); set by `log_in`.
    """

    def __init__(
        self,
        mechanism: Callable[[str], Any] | None,
        mechanism_name: str,
        host: str,
        mask: Mask,
        *,
        is_idempotent: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._needed = (METADATA, INIT_PRODUCER_ID) if is_idempotent else (METADATA,)
        self._mechanism_name = mechanism_name
        self._host = host
        self._mask = mask
        self.versions = BrokerVersions({})
        self.produce_version = 0
        self.session_lifetime_ms = 0

    def introduce(self) -> Conversation:
        """Request the broker's versions, and log in.

        Raises KafkaError: the broker refuses us, or supports no version that we do.
        """
        yield from self._ask_versions()
        yield from self.log_in()

    def _ask_versions(self) -> Conversation:
        request = API_VERSIONS.of(client_software_name="shmaccum", client_software_version=VERSION)
        call = Call(request, _NAMED_VERSION)
        frame = yield call
        # An older broker answers UNSUPPORTED_VERSION in version 0, some in the form of no version: retry in version 0.
        if len(frame) >= _ERROR_CODE.size and _ERROR_CODE.unpack_from(frame)[0] == _UNSUPPORTED_VERSION:
            call = Call(request, 0)
            frame = yield call
        response = decode_answer(call, frame)
        _check(response.error_code, "an ApiVersions request")
        features = {each.name: each.max_version_level for each in response.finalized_features}
        self.versions = BrokerVersions(
            {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}, features
        )
        self.produce_version = self.versions.best("Produce", PRODUCE, OLDEST_PRODUCE, NEWEST_PRODUCE)
        for kind in self._needed:
            self.versions.best(kind.api.name, kind.api.key, kind.api.oldest, kind.api.newest)

    def log_in(self) -> Conversation:
        """Log in by SASL, if it is on; also again, on a connection in use (KIP-368).

        Raises AuthenticationError: the broker refuses us.
        """
        if self._mechanism is None:
            return
        call = self.versions.call(SASL_HANDSHAKE.of(mechanism=self._mechanism_name))
        response = decode_answer(call, (yield call))
        if response.error_code == errors.UnsupportedSaslMechanismError.code:
            raise errors.UnsupportedSaslMechanismError(
                f"the broker does not offer sasl.mechanism {self._mechanism_name}, but "
                f"{self._mask.shown(', '.join(response.mechanisms))}"
            )
        _check(response.error_code, f"a request for sasl.mechanism {self._mechanism_name}")
        mechanism = yield self._task(self._mechanism, self._host)
        while not mechanism.is_done:
            data = yield self._task(mechanism.auth_bytes)
            call = self.versions.call(SASL_AUTHENTICATE.of(auth_bytes=data), largest_answer=_SASL_ANSWER)
            response = decode_answer(call, (yield call))
            if response.error_code == errors.SaslAuthenticationError.code:
                raise errors.SaslAuthenticationError(
                    f"the broker refused the login: {self._mask.shown(response.error_message or 'it does not say why')}"
                )
            _check(response.error_code, f"a login by {self._mechanism_name}")
            yield self._task(mechanism.receive, response.auth_bytes)
        self.session_lifetime_ms = max(0, response.session_lifetime_ms)

    def _task(self, function: Callable[..., Any], *args: object) -> Task:
        what = _TAKES_LONG.get(self._mechanism_name)
        key = what or f"{self._mechanism_name} for {self._host}"
        return Task(key, what or f"sasl.mechanism {self._mechanism_name}", partial(self._step, function, *args))

    def _step(self, function: Callable[..., Any], *args: object) -> Any:
        """Call into a mechanism; turn its exceptions, whose texts can show a password, into KafkaErrors."""
        try:
            return function(*args)
        except errors.KafkaError:
            raise
        except BaseException as error:  # a token provider can raise SystemExit
            what = self._mask.shown(str(error)) if self._mechanism_name == "GSSAPI" else type(error).__name__
            raise errors.SaslAuthenticationError(f"sasl.mechanism {self._mechanism_name} failed: {what}") from None


def decode_answer(call: Call, frame: bytes) -> Any:
    """Decode the response to a call; see `decode`. Raises NetworkError: the frame is no such response."""
    return decode(call.request.type, call.version, frame)


def _check(error_code: int, what: str) -> None:
    if error_code:
        error = error_for_code(error_code)
        if not issubclass(error, errors.AuthenticationError | errors.UnsupportedVersionError):
            error = errors.NetworkError  # the broker's trouble, not ours: as if it had closed the connection
        raise error(f"the broker answered {what} with error code {error_code}")
