"""Ports for brokers are free, and outside the range that the kernel hands out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from fixture_types import Link, Start

from tools.kafka import ports


def test_a_port_is_below_the_ephemeral_ones() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = ports.free_port()
    assert 1024 < port < lowest
    socket.create_server(("127.0.0.1", port)).close()


def draw(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Have a port drawn next, and then any."""
    usual, draws = ports._CHANCE.randrange, iter([first])
    monkeypatch.setattr(ports._CHANCE, "randrange", lambda *bounds: next(draws, None) or usual(*bounds))


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        draw(monkeypatch, taken)
        assert ports.free_port() != taken


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if no process listens there yet: the first caller is about to."""
    given = ports.free_port()
    draw(monkeypatch, given)
    assert ports.free_port() != given


def ask_for(link: Link, port: int) -> int:
    with pytest.MonkeyPatch.context() as monkeypatch:
        draw(monkeypatch, port)
        return ports.free_port()


def test_to_one_process(start: Start) -> None:
    """And to another one when that has ended."""
    child = start(give_and_stay)
    given = child.hear()
    assert start(ask_for, given).result() != given
    child.kill()
    assert start(ask_for, given).result() == given


def give_and_stay(link: Link) -> None:
    link.send(ports.free_port())
    link.recv()
