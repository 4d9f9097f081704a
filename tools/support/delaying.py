"""A proxy that delays what comes back, as a server far away would: each byte by the same time, in order.

It runs in threads of the process that starts it, and ends with that.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_CHUNK: Final = 1 << 20


def start_proxy(listening: int, server: int, delay_s: float) -> None:
    """Take connections at one port of 127.0.0.1 for the server at another, from now on."""
    listener = socket.create_server(("127.0.0.1", listening))
    _start(_accept, listener, server, delay_s)


def _accept(listener: socket.socket, server: int, delay_s: float) -> None:
    while True:
        client, _ = listener.accept()
        upstream = socket.create_connection(("127.0.0.1", server))
        for each in (client, upstream):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        later: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        _start(_pass_on, client, upstream)
        _start(_note, upstream, later, delay_s)
        _start(_pass_on_later, later, client)


def _start(target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def _note(source: socket.socket, later: queue.SimpleQueue[tuple[float, bytes]], delay_s: float) -> None:
    """Note what comes, and when it is due; the end is empty."""
    data = b"-"
    while data:
        try:
            data = source.recv(_CHUNK)
        except OSError:
            data = b""
        later.put((time.monotonic() + delay_s, data))


def _pass_on_later(later: queue.SimpleQueue[tuple[float, bytes]], to: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due, data = later.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)
