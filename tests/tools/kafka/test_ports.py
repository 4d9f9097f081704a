"""Ports for brokers are free, and of those that the kernel gives to nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tools.kafka import ports


def test_a_port_is_below_the_ephemeral_ones() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = ports.free_port()
    assert 1024 < port < lowest
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = ports.free_port(), ports.free_port()
    draws = iter([taken, free])
    monkeypatch.setattr(ports.random, "randrange", lambda *_: next(draws))
    with socket.create_server(("127.0.0.1", taken)):
        assert ports.free_port() == free
