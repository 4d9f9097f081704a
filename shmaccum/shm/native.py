"""The operating system's threads, locks and sleep, unpatched by gevent or eventlet.

Both libraries replace `threading`, `time.sleep` and more ("monkey-patching"). Their versions do not block, but switch
to another greenlet of the same thread. A switch inside a critical section lets that greenlet into it. So the package
uses the locks and short sleeps of this module. A wait that can be long and holds no lock calls `pause`, which
lets other greenlets run.

Import order does not matter: a module that is already patched gives its original.
"""

from __future__ import annotations

import importlib
import os
import posix
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from weakref import WeakSet

Member = TypeVar("Member")


def _original(module: str, name: str) -> Any:
    """Return an attribute of a standard library module as it was before patching."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_object_patched(module, name):
        return gevent.get_original(module, name)
    if eventlet is not None and eventlet.is_monkey_patched("time" if module == "time" else "thread"):
        return getattr(eventlet.original(module), name)
    return getattr(importlib.import_module(module), name)


Lock: Final = _original("_thread", "allocate_lock")
"""Make a lock as `threading.Lock` does; it has no owner."""
RLock: Final = _original("_thread", "RLock")
"""Make a lock as `threading.RLock` does; its owner is a thread, not a greenlet."""
sleep: Final[Callable[[float], None]] = _original("time", "sleep")
"""Sleep with the whole thread."""
write: Final = posix.write
"""`os.write`, which does not wait if the descriptor is non-blocking."""
_MIN_PAUSE_S: Final = 0.0005
_MAX_PAUSE_S: Final = 0.01
_get_native_id: Final = _original("_thread", "get_native_id")


def is_patched() -> bool:
    """Return whether gevent or eventlet has replaced `time.sleep` in this process."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return bool(
        (gevent is not None and gevent.is_module_patched("time"))
        or (eventlet is not None and eventlet.is_monkey_patched("time"))
    )


def is_green() -> bool:
    """Return whether other greenlets of this thread cannot run while this one blocks.

    A separate thread of the operating system blocks none: it is not the main thread, and runs no greenlets.
    """
    if not is_patched():
        return False
    return _get_native_id() == os.getpid() or sys.modules["greenlet"].getcurrent().parent is not None


def pause(pause_s: float) -> None:
    """Sleep, and let this thread's other greenlets run. Hold no lock that they can need."""
    (time.sleep if is_green() else sleep)(pause_s)


def poll(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds, and let other greenlets run; return False at a timeout."""
    deadline = time.monotonic() + timeout_s
    pause_s = _MIN_PAUSE_S
    while not condition():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        pause(min(pause_s, left_s))
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)
    return True


def members(of: WeakSet[Member]) -> list[Member]:
    """Return the members of a set to which other threads can add some meanwhile.

    A `WeakSet` is iterated by Python code. So another thread can run in between, and its `add` would end the iteration
    by a RuntimeError: in a fork hook, or in the thread that replaces dead senders.
    """
    while True:
        try:
            return list(of)
        except RuntimeError:
            continue  # now with the new one


def forks_unseen() -> bool:
    """Return whether this process is about to fork without running all of Python's fork hooks.

    uWSGI does so with an application that it loads before the fork, unless ``py-call-uwsgi-fork-hooks`` is set. The
    children would use the parent's entry of the process table, so locks of killed children would never be taken over.
    With ``py-call-osafterfork`` alone it runs the children's hooks, but forks without the GIL: a child is stuck for
    ever if another thread, such as the watch for a dead sender, held the GIL at that moment.
    """
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is None or not hasattr(uwsgi, "worker_id"):  # the module that a server embeds, or one of that name
        return False
    will_fork = uwsgi.worker_id() == 0 and (uwsgi.masterpid() > 0 or uwsgi.numproc > 1)
    return will_fork and "py-call-uwsgi-fork-hooks" not in uwsgi.opt
