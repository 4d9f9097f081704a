"""An object in a forked process of its own, whose methods are called through a pipe.

The tool itself forks the contestants, so it must not hold clients and their threads: brokers, their administration and
Spark are in such processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from tools.benchmark.errors import BenchmarkError, MissingError
from tools.kafka.errors import KafkaMissingError
from tools.support.processes import Children


def hear(link: Connection, who: str, patience_s: float, meanwhile: Callable[[], object] = lambda: None) -> Any:
    """Return what a process sends next; call ``meanwhile`` every second."""
    deadline = time.monotonic() + patience_s
    try:
        while not link.poll(1.0):
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{who} has not responded for {patience_s:.0f} s")
            meanwhile()
        heard = link.recv()
    except (EOFError, ConnectionError):
        raise BenchmarkError(f"{who} has exited") from None
    if isinstance(heard, BenchmarkError):
        raise heard
    return heard


class Remote:
    """A running service, which messages call ``who``; ``pid`` is the ancestor of all that it starts."""

    def __init__(self, children: Children, who: str, make: Callable[[], object], patience_s: float = 120.0) -> None:
        self._who, self._patience_s = who, patience_s
        self._link, theirs = Pipe()
        self.pid = children.fork(who, lambda: _serve(make, self._link, theirs))
        theirs.close()
        hear(self._link, who, patience_s)

    def call(self, method: str, *arguments: object, meanwhile: Callable[[], object] = lambda: None) -> Any:
        self._link.send((method, arguments))
        return hear(self._link, self._who, self._patience_s, meanwhile)

    def end(self) -> None:
        """Let its process end."""
        self._link.send(None)


def _serve(make: Callable[[], object], tools_end: Connection, link: Connection) -> int:
    tools_end.close()
    try:
        service = make()
    except Exception as error:
        kind = MissingError if isinstance(error, KafkaMissingError) else BenchmarkError
        link.send(kind(f"{type(error).__name__}: {error}"))
        return 1
    link.send(None)
    wait: Callable[[Connection], object] = getattr(service, "wait", lambda link: None)
    while True:
        wait(link)
        if (called := link.recv()) is None:
            return 0
        method, arguments = called
        try:
            answer = getattr(service, method)(*arguments)
        except Exception as error:
            answer = BenchmarkError(f"{method} failed: {type(error).__name__}: {str(error)[:2000]}")
        link.send(answer)
