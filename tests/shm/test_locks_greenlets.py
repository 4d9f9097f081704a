"""A greenlet is switched out while it holds a lock: other greenlets of its thread wait for it."""

from __future__ import annotations

import subprocess
import sys

import greenlet
import pytest

import shmaccum
from shmaccum.errors import IllegalStateError
from shmaccum.shm import names
from shmaccum.shm.slab import Slab

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch()",
}

PROGRAM = """
import sys, threading, time
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm.layout import Geometry
from shmaccum.shm.lifecycle import attach, detach

slab = attach(sys.argv[1], Geometry(slot_size=64, slot_count=8, max_processes=8, max_topics=4, max_partitions=4))
for lock in slab.locks:
    lock.rebuild = lambda: steps.append("rebuilt")
steps = []

def hold(seconds):
    with slab.locks[5]:
        steps.append("held")
        time.sleep(seconds)  # as a finalizer that waits for something
        steps.append("left")

def use(number):
    with slab.locks[number]:
        steps.append(f"used {number}")

def at_once(*calls):
    threads = [threading.Thread(target=call, args=args) for call, *args in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

# They wait for it, whichever lock they want.
at_once((hold, 0.05), (use, 5), (use, 6))
assert steps[:2] == ["held", "left"] and sorted(steps[2:]) == ["used 5", "used 6"], steps
del steps[:]

# Not for ever.
def be_impatient():
    try:
        with slab.locks[6].within(0.02):
            steps.append("used 6")
    except LockTimeoutError as error:
        steps.append("refused")
        assert "another greenlet" in str(error)

at_once((hold, 0.2), (be_impatient,))
assert steps == ["held", "refused", "left"], steps
del steps[:]

# One that cleans up behind an error of its own leaves it alone.
at_once((hold, 0.05), (slab.settle,), (use, 6))
assert steps == ["held", "left", "used 6"], steps
del steps[:]

# The very same greenlet is refused, as a signal's handler that comes back is.
def come_back():
    with slab.locks[5]:
        try:
            exec("slab.pool_lock.acquire()", {"slab": slab})
        except IllegalStateError as error:
            steps.append(str(error)[:14])

if sys.argv[2] == "compiled":
    come_back()
    assert steps == ["reentrant call"], steps

# Who leaves the slab leaves that lock, too.
holder = threading.Thread(target=hold, args=(0.05,))
holder.start()
other = attach(slab.name)
detach(slab)
detach(other)
"""


@pytest.mark.parametrize("library", PATCHES)
def test_others_wait_for_a_greenlet_that_is_switched_out_with_a_lock(library: str, slab_name: str) -> None:
    program = f"{PATCHES[library]}\n{PROGRAM}"
    form = "compiled" if shmaccum.compiled else "plain"
    done = subprocess.run(
        [sys.executable, "-c", program, slab_name, form], timeout=60, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    assert slab_name not in names.slab_names()


def test_without_patches_a_greenlet_that_is_switched_out_with_a_lock_is_an_error(slab: Slab) -> None:
    """Else the other greenlet would release the lock that the first one still uses."""
    main = greenlet.getcurrent()

    def hold() -> None:
        with slab.locks[5]:
            main.switch()

    holder = greenlet.greenlet(hold)
    holder.switch()
    with pytest.raises(IllegalStateError, match="another greenlet"), slab.locks[6]:
        pass
    assert slab.locks[5].owner() == slab.me

    holder.switch()
    with slab.locks[6]:
        assert slab.locks[5].owner() == -1
