"""Real child processes for the tests: run a function in one, talk to it, stop it, kill it.

A child calls ``function(link, *args)``, where ``link`` is its end of a two-way pipe (`multiprocessing.connection
.Connection`). What the function sends can be heard by `Child.hear`, what it returns or raises comes out of
`Child.result`. Functions must be at the top level of their module. Use the ``start`` fixture, which kills whatever
is left when the test ends.

========= =======================================================================================
``how``   the child
========= =======================================================================================
"clean"   is forked from a server that has imported the package and nothing else: inherits nothing
"spawn"   is a new interpreter: as "clean", but slow
"fork"    is forked from the test: inherits the slabs that it is attached to
========= =======================================================================================
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple

How = Literal["clean", "spawn", "fork"]

PATIENCE_S = 60.0
"""How long a test waits for a child before it gives up: far longer than anything takes."""

_METHODS = {"clean": "forkserver", "spawn": "spawn", "fork": "fork"}
# And what most tests of several processes read by: what is not here, every single child would import.
multiprocessing.set_forkserver_preload(
    ["hypothesis", "numpy", "pytest", "kafka.record", "shmaccum.producer.producer", "shmaccum.sender.process"]
)


class ChildFailedError(AssertionError):
    """The function in the child raised; the message holds its traceback."""


class _Outcome(NamedTuple):
    """What the function returned, or the traceback of what it raised."""

    value: Any = None
    raised: str = ""

    def taken(self) -> Any:
        """Return the value, or raise the error."""
        if self.raised:
            raise ChildFailedError(self.raised)
        return self.value


class Child:
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], how: How) -> None:
        context = multiprocessing.get_context(_METHODS[how])
        self._link, theirs = context.Pipe()
        # The module travels as a path: a child cannot import a test module by the name that pytest gave it.
        where = (sys.modules[function.__module__].__file__, function.__name__) if how != "fork" else function
        self._process = context.Process(target=_run, args=(where, theirs, args), daemon=True)  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()
        self.pid = self._process.pid or 0
        self._outcome: _Outcome | None = None

    def tell(self, value: Any = None) -> None:
        """Send the child something; its ``link.recv()`` returns it."""
        self._link.send(value)

    def hear(self, timeout_s: float = PATIENCE_S) -> Any:
        """Return the next thing that the child sent; raise what it raised."""
        if self._outcome is None:
            message = self._next_message(timeout_s)
            if self._outcome is None:
                return message
        raise ChildFailedError(f"the child returned {self._outcome.taken()!r} instead of saying something")

    def ready(self, said: Any = None) -> Child:
        """Wait until the child has sent something, which is ``said`` if that is given; return the child."""
        heard = self.hear()
        assert said in (None, heard)
        return self

    def finish(self) -> Any:
        """Tell the child to go on to its end, and return what its function returned."""
        self.tell()
        return self.result()

    def result(self, timeout_s: float = PATIENCE_S) -> Any:
        """Wait for the child's end and return what its function returned; raise what it raised."""
        deadline = time.monotonic() + timeout_s
        while self._outcome is None:
            self._next_message(deadline - time.monotonic())
        self.join(deadline - time.monotonic())
        return self._outcome.taken()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def join(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the child's end and return its exit code: minus the signal's number if one killed it."""
        self._process.join(max(0.0, timeout_s))
        if self._process.exitcode is None:
            raise TimeoutError(f"child {self.pid} is still running after {timeout_s} s")
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the child as the kernel does, at once and with nothing cleaned up; wait until it is gone."""
        self._process.kill()
        self.join()

    def end(self) -> str:
        """Kill the child if it still runs, and say what became of it: why something did not come about."""
        was_running = self._process.exitcode is None
        self.kill()
        with contextlib.suppress(ChildFailedError, OSError):
            while self._outcome is None and self._link.poll():
                self._next_message(0)
        if self._outcome is not None:
            raised, value = self._outcome.raised, self._outcome.value
            return f"child {self.pid} raised:\n{raised}" if raised else f"child {self.pid} returned {value!r}"
        if was_running:
            return f"child {self.pid} was still running"
        return f"child {self.pid} died without a word, with exit code {self.join()}"

    def _next_message(self, timeout_s: float) -> Any:
        ready = wait([self._link, self._process.sentinel], max(0.0, timeout_s))
        if not ready:
            raise TimeoutError(f"child {self.pid} said nothing for {timeout_s} s")
        if self._link not in ready and not self._link.poll():
            raise ChildFailedError(f"child {self.pid} died without a word, with exit code {self.join()}")
        try:
            message = self._link.recv()
        except EOFError:
            raise ChildFailedError(f"child {self.pid} died without a word, with exit code {self.join()}") from None
        if isinstance(message, _Outcome):
            self._outcome = message
        return message


Start = Callable[..., Child]
"""The fixture ``start``: ``start(function, *args, how="clean")``."""


def leave(child: Child) -> None:
    """Have a sender leave by SIGTERM: its function returns "left"."""
    child.signal(signal.SIGTERM)
    assert child.result() == "left"


def finish(*children: Child) -> list[Any]:
    """Tell children to go on to their ends, all at once; return what their functions returned."""
    for child in children:
        child.tell()
    return [child.result() for child in children]


@contextlib.contextmanager
def in_threads(*functions: Callable[[], object]) -> Iterator[None]:
    """Call functions in a thread each during the block, and wait at its end until all have returned."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], object], what: str = "something that others bring about") -> None:
    """Wait for something that is bound to happen.

    The longer a look takes, the longer the nap before the next one: a look at all processes, or by a request to a
    broker, must not keep the processors from what it waits for.
    """
    began = time.monotonic()
    deadline = began + PATIENCE_S
    while not condition():
        ended = time.monotonic()
        assert ended < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(min(max(0.002, 4 * (ended - began)), 0.1))
        began = time.monotonic()


def _run(where: Any, link: Connection, args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    try:
        function = _load(*where) if isinstance(where, tuple) else where
        outcome = _Outcome(function(link, *args))
    except BaseException:
        outcome = _Outcome(raised=traceback.format_exc())
    link.send(outcome)


def _load(path: str, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("module_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["module_under_test"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function
