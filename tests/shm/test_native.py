"""The operating system's own threads, locks and sleep, in programs that gevent or eventlet have patched."""

from __future__ import annotations

import sys
from weakref import WeakSet

import pytest
from runs import run_python, threads

from shmaccum.shm import native

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()",
}

LOOK = """
import _thread

assert type(native.Lock()).__name__ == type(native.RLock()).__name__.lower().replace("rlock", "lock") == "lock"
assert type(native.sleep).__name__ == type(native.write).__name__ == "builtin_function_or_method"
assert native.is_patched() and native.is_green()

ran, ended = [], native.Lock()
ended.acquire()

def greenlet():
    ran.append(("greenlet", native.is_green()))

def thread():
    ran.append(("thread", native.is_green()))
    ended.release()

_thread.start_new_thread(greenlet, ())
native._original("_thread", "start_new_thread")(thread, ())
ended.acquire()
native.sleep(0.02)
assert ran == [("thread", False)], "no greenlet runs while the thread blocks"
native.pause(0.02)
assert ran == [("thread", False), ("greenlet", True)]
"""


@pytest.mark.parametrize("library", PATCHES)
@pytest.mark.parametrize("patched", ["before the import", "after the import"])
def test_native_is_what_the_library_replaced(library: str, patched: str) -> None:
    steps = [PATCHES[library], "from shmaccum.shm import native"]
    script = "\n".join(steps if patched == "before the import" else steps[::-1]) + LOOK
    run = run_python("-c", script)
    assert run.returncode == 0, run.stderr


class Thing:
    """Something that a weak set can hold."""


def test_members_of_a_set_that_grows_meanwhile() -> None:
    things = [Thing() for _ in range(300)]
    found, added = WeakSet(things), list(things)

    def add(_: int) -> None:
        for _ in range(2000):
            added.append(Thing())
            found.add(added[-1])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with threads(1, add) as is_running:
            while is_running():
                assert set(native.members(found)) >= set(things)
    finally:
        sys.setswitchinterval(interval)
    assert set(native.members(found)) == set(added)
