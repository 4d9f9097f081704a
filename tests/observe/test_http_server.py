"""The server of metrics: what it answers, and that no client can hold it up."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from shmaccum.errors import ConfigError
from shmaccum.observe import http_server
from shmaccum.observe.http_server import CLIENTS, MetricsServer
from shmaccum.observe.prometheus import SlabCollector


@pytest.fixture(scope="module")
def server() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0, SlabCollector([]))
    server.start()
    yield server
    server.close()


def ask(server: MetricsServer, method: str, path: str, accept: str = "*/*") -> tuple[int, str | None, bytes]:
    """Return status, media type and content of an answer."""
    with closing(http.client.HTTPConnection(*server.server_address[:2], timeout=30)) as connection:
        connection.request(method, path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read()


def client(server: MetricsServer) -> socket.socket:
    return socket.create_connection(server.server_address[:2], timeout=30)


def test_metrics_as_text_and_as_openmetrics(server: MetricsServer) -> None:
    status, media_type, text = ask(server, "GET", "/metrics")
    assert (status, media_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"\nshmaccum_slabs 0.0\n" in text
    status, media_type, text = ask(server, "GET", "/metrics?x=1", "application/openmetrics-text;version=1.0.0;q=0.5")
    assert (status, (media_type or "").partition(";")[0]) == (200, "application/openmetrics-text")
    assert "shmaccum_slabs" in [family.name for family in parse_openmetrics(text.decode())]


def test_what_else_is_served(server: MetricsServer) -> None:
    assert ask(server, "HEAD", "/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", b"")
    status, _, page = ask(server, "GET", "/")
    assert status == 200
    assert b'href="/metrics"' in page
    assert [ask(server, *other)[0] for other in (("GET", "/metric"), ("POST", "/metrics"))] == [404, 501]


def test_a_request_that_makes_no_sense_is_answered(server: MetricsServer) -> None:
    assert ask(server, "HEAD", "/metrics", "text/plain;version=x")[:2] == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    with client(server) as connection:
        connection.sendall(b"GET http://[/metrics HTTP/1.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 400"


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        server = MetricsServer("::1", 0, SlabCollector([]))
    except ConfigError as error:
        pytest.skip(f"this host has no IPv6: {error}")
    server.start()
    try:
        assert server.url == f"http://[::1]:{server.server_address[1]}/metrics"
        assert ask(server, "GET", "/metrics")[0] == 200
    finally:
        server.close()


def test_a_link_local_address_keeps_its_interface() -> None:
    """Without it, the kernel would refuse every such address as an invalid argument."""
    with pytest.raises(ConfigError, match=r"cannot listen at \[fe80::1%lo\]:1: (Cannot assign|Address family)"):
        MetricsServer("fe80::1%lo", 1, SlabCollector([]))


def test_silent_and_slow_clients_are_dropped(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 0.3)
    with client(server) as silent, client(server) as slow:
        began = time.monotonic()
        with suppress(OSError):
            for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n" * 100:
                slow.send(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 30
        assert silent.recv(1) == b""
    assert ask(server, "GET", "/metrics")[0] == 200


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\n"])
def test_more_silent_clients_than_places_keep_nobody_out(server: MetricsServer, said: bytes) -> None:
    with ExitStack() as clients:
        silent = [clients.enter_context(client(server)) for _ in range(3 * CLIENTS)]
        for each in silent[-CLIENTS:]:
            each.sendall(said)
        assert ask(server, "GET", "/metrics")[0] == 200
        assert ask(server, "GET", "/metrics")[0] == 200


def test_nonsense_does_no_harm(server: MetricsServer) -> None:
    for said in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\xff" * 40_000, b"a: b" * 9000):
        with client(server) as talker, suppress(OSError):
            talker.sendall(said)
            talker.shutdown(socket.SHUT_WR)
            while talker.recv(4096):
                pass
        assert ask(server, "GET", "/metrics")[0] == 200
