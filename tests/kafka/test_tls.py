"""A TLS connection: what it writes arrives, in few records."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fixture_types import LogCapture
from hypothesis import example, given, settings
from hypothesis import strategies as st
from producers import wait_until
from runs import threads

from shmaccum.config import ProducerConfig
from shmaccum.kafka.tls import TlsChannel, TlsConnector, tls_context
from tools.kafka import Certificates

RECORD_SIZE = 1 << 14
APPLICATION_DATA = 23


class Peer:
    """A server that decrypts what comes, and counts the TLS records that it comes in."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # a sender has to wait
        self.address = self._listener.getsockname()
        self._context = context
        self._received = bytearray()
        self.records = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
        connection, _ = self._listener.accept()
        frames = bytearray()
        is_open = False
        with self._listener, connection, suppress(ConnectionResetError):
            while data := connection.recv(1 << 16):
                frames += data
                while len(frames) >= 5 and len(frames) >= (end := 5 + struct.unpack_from(">H", frames, 3)[0]):
                    self.records += is_open and frames[0] == APPLICATION_DATA
                    incoming.write(bytes(frames[:end]))
                    del frames[:end]
                    try:
                        if not is_open:
                            tls.do_handshake()
                            is_open = True
                        else:
                            self._received += tls.read(RECORD_SIZE)
                    except ssl.SSLWantReadError:
                        pass
                    if outgoing.pending:
                        connection.sendall(outgoing.read())

    def take(self, size: int) -> bytes:
        """Return the next bytes, once they have come."""
        wait_until(lambda: len(self._received) >= size)
        taken = bytes(self._received)
        self._received.clear()
        return taken

    def end(self) -> None:
        self._thread.join()


@pytest.fixture(scope="module")
def connected(certificates: Certificates) -> Iterator[tuple[TlsChannel, Peer]]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.broker.pem)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    peer = Peer(server)
    channel = TlsChannel(client, (socket.AF_INET, peer.address), 1 << 14, -1, "localhost")
    while event := channel.open():
        wait(channel, event)
    yield channel, peer
    channel.close()
    peer.end()


def subject(connector: TlsConnector, server: ssl.SSLContext) -> str:
    """Connect; return whose certificate the server sees."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = connector((socket.AF_INET, listener.getsockname()), -1, -1, "localhost")

        def open_ours() -> None:
            while event := channel.open():
                wait(channel, event)

        with threads(1, lambda _: open_ours()), server.wrap_socket(listener.accept()[0], server_side=True) as peer:
            seen: Any = peer.getpeercert()
        channel.close()
        return str(seen["subject"][0][0][1])


def test_a_connection_uses_the_files_as_they_are(
    certificates: Certificates, tmp_path: Path, caplog: LogCapture
) -> None:
    """Half a file, or none, changes nothing; it is read again, also if only its permissions change."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    server.load_cert_chain(certificates.broker.pem)
    server.verify_mode = ssl.CERT_REQUIRED
    own = tmp_path / "own.pem"
    content = certificates.client.pem.read_bytes()
    own.write_bytes(content)
    connector = TlsConnector(
        ProducerConfig.parse(
            {
                "bootstrap.servers": "localhost:1",
                "security.protocol": "SSL",
                "ssl.keystore.location": str(own),
                "ssl.truststore.location": str(certificates.ca),
            }
        )
    )
    assert subject(connector, server) == "client"
    for half in (content[: len(content) // 2], b""):
        own.write_bytes(half)
        assert subject(connector, server) == "client"
    own.unlink()
    assert subject(connector, server) == "client"
    assert caplog.text.count(f"ssl.keystore.location = '{own}'") == 3
    others = certificates.broker.pem.read_bytes()
    own.write_bytes(bytes(len(others)))
    when = own.stat().st_mtime_ns
    assert subject(connector, server) == "client"
    own.write_bytes(others)
    os.utime(own, ns=(when, when))
    assert subject(connector, server) == "broker"


def wait(channel: TlsChannel, event: int) -> None:
    poll = select.poll()
    poll.register(channel.fileno(), event)
    assert poll.poll(60_000)


def noise(size: int) -> bytes:
    return bytes(number * number % 251 for number in range(size))


def write_all(channel: TlsChannel, buffers: list[bytes]) -> None:
    """Write as `Connection` does."""
    rest: list[bytes | memoryview] = list(buffers)
    while rest:
        written = channel.write(rest)
        if not written:
            wait(channel, select.POLLOUT)
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:
            rest[0] = memoryview(rest[0])[written:]


@settings(max_examples=30)
@given(sizes=st.lists(st.one_of(st.integers(1, 200), st.integers(RECORD_SIZE - 2, 40_000)), min_size=1, max_size=40))
@example(sizes=[50, 3_000] * 100)
@example(sizes=[50, 2_000_000])
def test_all_bytes_arrive_in_order_and_in_few_records(connected: tuple[TlsChannel, Peer], sizes: list[int]) -> None:
    """Small buffers share records, and large ones fill theirs."""
    channel, peer = connected
    buffers = [noise(size)[::-1] for size in sizes]
    records = peer.records
    write_all(channel, buffers)
    assert peer.take(sum(sizes)) == b"".join(buffers)
    assert peer.records - records <= sum(sizes) // RECORD_SIZE + 1


def test_bytes_stay_in_order_if_openssl_takes_less_than_a_record(
    connected: tuple[TlsChannel, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, peer = connected
    send = ssl.SSLSocket.send
    monkeypatch.setattr(ssl.SSLSocket, "send", lambda self, data: send(self, data[:10_000]))
    write_all(channel, [noise(40_000), noise(50)])
    assert peer.take(40_050) == noise(40_000) + noise(50)


def test_without_a_truststore_the_systems_certificates_are_trusted(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    config = ProducerConfig.parse({"bootstrap.servers": "localhost:1", "security.protocol": "SSL"})
    assert len(tls_context(config).get_ca_certs()) == 1
