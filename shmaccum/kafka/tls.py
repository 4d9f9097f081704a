"""TLS: its context from the settings, and a connection with it.

Only who connects with TLS imports this module: ``ssl`` and OpenSSL take 6 MB of a process. No error shows a secret.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import ssl
from collections.abc import Iterator, Sequence
from typing import Final

from shmaccum._core import memory_file
from shmaccum.config import ProducerConfig
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ShmaccumError
from shmaccum.kafka.channel import READ_SIZE, Address, Buffer, Channel, not_empty
from shmaccum.kafka.keystores import KeyStore, read_keystore
from shmaccum.kafka.masking import naming

logger = logging.getLogger(__name__)

_RECORD_SIZE: Final = 1 << 14
"""Most bytes of a TLS record, before they are encrypted."""
_PEM: Final = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s([A-Za-z0-9+/=\s]*)-+END \1-+")
"""A block of PEM without headers, its lines broken anywhere."""
_PEM_LINE: Final = 64
"""Characters of a line in PEM (RFC 7468)."""
_NO_TLS: Final = " in the TLS handshake; is this port one of security.protocol SSL or SASL_SSL?"
_REFUSED: Final = ": the broker refused our certificate, or misses one; check ssl.keystore.location, and its end"
_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The broker closed the connection: without a word, or with a close_notify, as brokers that stop send it."""
_MOST_READS: Final = 64
"""TLS records after which `TlsChannel.read` leaves the rest in the socket."""


class TlsChannel(Channel):
    """A TLS connection, opening or open; the broker's certificate must have the name ``host``."""

    def __init__(
        self, context: ssl.SSLContext, address: Address, send_buffer: int, receive_buffer: int, host: str
    ) -> None:
        super().__init__(address, send_buffer, receive_buffer)
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None
        self._is_open = False

    def open(self) -> int:
        """Continue connecting and the handshake (see `Channel.open`).

        Raises OSError: it cannot be opened; as a ssl.SSLError, one side does not accept the other.
        """
        if self._tls is None:
            if event := super().open():
                return event
            self._tls = self._context.wrap_socket(
                self._socket, server_hostname=self._host, do_handshake_on_connect=False
            )
            self._socket = self._tls
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        self._is_open = True
        return 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send as much as goes without waiting; return the bytes of the buffers sent.

        The unsent bytes must come first in the next call: OpenSSL can have begun to encrypt them.
        """
        written = 0
        for record in _records(buffers):
            try:
                sent = self._socket.send(record)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
            written += sent
            if sent < len(record):  # it never cuts one this short; but then the rest must come first
                break
        return written

    def read(self) -> list[bytes]:
        """Return the bytes that have arrived. Each read takes a whole record: what OpenSSL holds wakes no ``epoll``.

        After `_MOST_READS` it leaves bytes in the socket: a broker that sends without end must not fill the memory.
        """
        found: list[bytes] = []
        while True:
            try:
                found.append(not_empty(self._socket.recv(READ_SIZE)))
                if len(found) >= _MOST_READS:
                    return found
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return found
            except OSError:
                if not found:
                    raise
                return found  # the next call meets the same error

    def reason(self, error: OSError) -> str:
        """Return why an error ended this connection."""
        if isinstance(error, _CLOSED):
            return "the broker closed the connection" + ("" if self._is_open else _NO_TLS)
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or error.strerror
            return f"TLS: {reason}" + (_REFUSED if _is_of_our_certificate(error.reason) else "")
        return super().reason(error)

    def is_refusal(self, error: OSError) -> bool:
        """Return whether an error means that one side does not accept the other's certificate or version."""
        return isinstance(error, ssl.SSLError) and not isinstance(error, _CLOSED)


def _is_of_our_certificate(reason: str | None) -> bool:
    """Return whether OpenSSL's reason is an alert with which a broker refuses our certificate, or misses it."""
    return reason is not None and "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _records(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield what each TLS record gets: as much as it takes, copied if it comes from several buffers.

    OpenSSL encrypts and sends each record on its own, and both cost more than a copy. A request has two buffers for
    each batch, and most batches are smaller than a record.
    """
    parts: list[memoryview] = []
    size = 0
    for buffer in buffers:
        rest = memoryview(buffer)
        while rest:
            parts.append(rest[: _RECORD_SIZE - size])
            size += len(parts[-1])
            rest = rest[len(parts[-1]) :]
            if size == _RECORD_SIZE:
                yield parts[0] if len(parts) == 1 else b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


# --- the context ----------------------------------------------------------------------------------


class TlsConnector:
    """Makes connections with TLS, by certificates and keys as their files are when a connection begins.

    A sender outlives its programs and their certificates. Those that read new files at their start expect the sender to
    use them. Files that cannot be used change nothing: they can be half written.

    Raises ConfigError: as `tls_context`.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._files = self._stat_files()
        self._context = tls_context(config)

    def __call__(self, address: Address, send_buffer: int, receive_buffer: int, host: str) -> TlsChannel:
        """Begin to connect to an address; the broker's certificate must have the name ``host``."""
        files = self._stat_files()
        if files != self._files:
            try:
                self._context = tls_context(self._config)
                self._files = files
                logger.info("read certificates and keys again: their files have changed")
            except ShmaccumError as error:
                extra = {"seldom": "certificates"}  # tried again for each connection: a chmod leaves the files' times
                logger.warning("%s; connections use what it was before", error, extra=extra)
        return TlsChannel(self._context, address, send_buffer, receive_buffer, host)

    def _stat_files(self) -> list[tuple[int, ...] | None]:
        found: list[tuple[int, ...] | None] = []
        for path in (self._config.ssl_keystore_location, self._config.ssl_truststore_location):
            try:
                status = os.stat(path) if path else None
            except OSError:
                status = None
            found.append(status and (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        return found


def tls_context(config: ProducerConfig) -> ssl.SSLContext:
    """Return the context of connections with TLS.

    Raises ConfigError: a certificate or key cannot be read; names the setting, without secret values.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    _trust(context, config)
    _be_known(context, config)
    return context


def _trust(context: ssl.SSLContext, config: ProducerConfig) -> None:
    if config.ssl_truststore_certificates is not None:
        with _naming("ssl.truststore.certificates"):
            # Python takes ASCII only; comments between certificates, such as names of authorities, can have more.
            pem = _in_lines(config.ssl_truststore_certificates.value).encode("ascii", "replace").decode()
            context.load_verify_locations(cadata=pem)
    elif config.ssl_truststore_location:
        path = config.ssl_truststore_location
        with _naming("ssl.truststore.location", path):
            store = _java_store(path, config.ssl_truststore_type, config.ssl_truststore_password)
            if store is None:
                context.load_verify_locations(cafile=path)
            elif store.trusted:
                context.load_verify_locations(cadata=store.trusted)
            else:
                raise ValueError("it holds no trusted certificate")
    else:
        context.load_default_certs()


def _be_known(context: ssl.SSLContext, config: ProducerConfig) -> None:
    # Never None: OpenSSL would ask the terminal for a password.
    password = config.ssl_key_password.value if config.ssl_key_password is not None else ""
    if config.ssl_keystore_location:
        path = config.ssl_keystore_location
        with _naming("ssl.keystore.location", path):
            store = _java_store(path, config.ssl_keystore_type, config.ssl_keystore_password)
            if store is None:
                context.load_cert_chain(path, password=lambda: password)
            else:
                of_key = config.ssl_key_password or config.ssl_keystore_password
                with _unnamed_file(store.identity(of_key.value if of_key is not None else None)) as pem_path:
                    context.load_cert_chain(pem_path)
    elif config.ssl_keystore_certificate_chain is not None and config.ssl_keystore_key is not None:
        pem = _in_lines(f"{config.ssl_keystore_key.value}\n{config.ssl_keystore_certificate_chain.value}\n")
        with _naming("ssl.keystore.certificate.chain and ssl.keystore.key"), _unnamed_file(pem) as path:
            context.load_cert_chain(path, password=lambda: password)


def _in_lines(pem: str) -> str:
    """Break PEM into lines as OpenSSL needs them.

    Java takes it on one line, or indented, too. That is how text comes from a continued line of Java properties, from
    YAML, or from an option of Spark.
    """

    def block(match: re.Match[str]) -> str:
        body = "".join(match[2].split())
        lines = [body[at : at + _PEM_LINE] for at in range(0, len(body), _PEM_LINE)]
        return "\n".join(["", f"-----BEGIN {match[1]}-----", *lines, f"-----END {match[1]}-----", ""])

    return _PEM.sub(block, pem)


def _java_store(path: str, kind: str, password: Password | None) -> KeyStore | None:
    """Read a Java keystore; return None if the file is PEM.

    Raises OSError, ValueError, ApiVersionError: as `read_keystore`; or the file is not of the type that is set.
    """
    if kind == "PEM":
        return None
    store = read_keystore(path, password.value if password is not None else None)
    if store is None and kind:
        raise ValueError(f"the file is not {kind}")
    if store is None and password is not None:
        raise ValueError("the file is neither JKS nor PKCS#12, and no other type has a store password")
    return store


@contextlib.contextmanager
def _naming(setting: str, path: str = "") -> Iterator[None]:
    """Name the setting in errors; OpenSSL's name nothing."""
    with naming(setting, path):
        try:
            yield
        except ssl.SSLError as error:
            reason = error.reason or "no PEM certificate, a key that does not match it, or a wrong password of the key"
            raise ValueError(f"OpenSSL cannot use it: {reason}") from None


@contextlib.contextmanager
def _unnamed_file(text: str) -> Iterator[str]:
    """Yield a path to text that never touches a disk: OpenSSL takes nothing but paths."""
    descriptor = memory_file(b"pem")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
