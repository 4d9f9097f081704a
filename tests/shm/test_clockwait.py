"""A wait lasts for its timeout, even if the wall clock is set meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest

from shmaccum.shm import clockwait, names
from shmaccum.shm.clockwait import ClockWait

NAME = f"{names.before_semaphores()}shmaccum-clockwait{os.getpid()}"


@pytest.fixture
def semaphore() -> Iterator[posix_ipc.Semaphore]:
    made = posix_ipc.Semaphore(NAME, posix_ipc.O_CREX, mode=0o600, initial_value=0)
    yield made
    with contextlib.suppress(posix_ipc.ExistentialError):
        made.unlink()
    made.close()


@pytest.fixture(params=["by the monotonic clock", "as posix_ipc does"])
def wait(
    request: pytest.FixtureRequest, semaphore: posix_ipc.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClockWait]:
    monkeypatch.setattr(clockwait, "_HAS_CLOCKWAIT", request.param == "by the monotonic clock")
    wait = ClockWait(semaphore)
    yield wait
    wait.close()


def test_a_free_unit_is_acquired_at_once(semaphore: posix_ipc.Semaphore, wait: ClockWait) -> None:
    semaphore.release()
    unit: list[None] = []
    wait.into(unit, 60)
    assert len(unit) == 1
    assert semaphore.value == 0


def test_a_unit_posted_in_time_is_acquired(semaphore: posix_ipc.Semaphore, wait: ClockWait) -> None:
    threading.Timer(0.1, semaphore.release).start()
    unit: list[None] = []
    wait.into(unit, 60)
    assert len(unit) == 1


def test_a_wait_in_vain_lasts_for_its_timeout(semaphore: posix_ipc.Semaphore, wait: ClockWait) -> None:
    unit: list[None] = []
    started = time.monotonic()
    wait.into(unit, 0.05)
    assert time.monotonic() - started >= 0.05
    assert unit == []
    wait.into(unit, -1)
    assert unit == []
    wait.close()


def test_an_unlinked_semaphore_is_an_error(semaphore: posix_ipc.Semaphore) -> None:
    wait = ClockWait(semaphore)
    posix_ipc.unlink_semaphore(NAME)
    with pytest.raises(OSError, match=NAME[1:]):
        wait.into([], 0.01)


def preloading(source: str, directory: Path) -> dict[str, str]:
    """Return the environment of a process that replaces functions of the C library."""
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler: apt-get install gcc libc6-dev"
    (directory / "own.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", directory / "own.so", directory / "own.c", "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return os.environ | {"LD_PRELOAD": str(directory / "own.so"), "PYTHONPATH": os.pathsep.join(sys.path)}


AN_HOUR_AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += 3600;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}
"""
WAIT = """
import sys, posix_ipc
from shmaccum.shm import clockwait
clockwait._HAS_CLOCKWAIT = sys.argv[2] == "monotonic"
unit = []
clockwait.ClockWait(posix_ipc.Semaphore(sys.argv[1])).into(unit, 0.2)
print(unit)
"""


def test_setting_back_the_clock_does_not_extend_a_wait(semaphore: posix_ipc.Semaphore, tmp_path: Path) -> None:
    """The process's clock is an hour ahead: as if it were set back during the wait."""
    environment = preloading(AN_HOUR_AHEAD, tmp_path)

    def waits(how: str, patience_s: float) -> str:
        command = [sys.executable, "-c", WAIT, NAME, how]
        return subprocess.run(
            command, env=environment, timeout=patience_s, check=True, capture_output=True, text=True
        ).stdout

    with pytest.raises(subprocess.TimeoutExpired):  # because of the clock
        waits("time of day", 2)
    assert waits("monotonic", 60) == "[]\n"


A_LONG_TIME_OVER_OPENING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
sem_t *sem_open(const char *name, int flags, ...) {
    pthread_mutex_lock(&table);
    usleep(300000);
    sem_t *opened = ((sem_t *(*)(const char *, int, ...))dlsym(RTLD_NEXT, "sem_open"))(name, flags);
    pthread_mutex_unlock(&table);
    return opened;
}
"""
FORK_AND_OPEN = """
import os, signal, sys, threading, time, posix_ipc
from shmaccum.shm.clockwait import ClockWait
name = sys.argv[1]
thread = threading.Thread(target=ClockWait(posix_ipc.Semaphore(name)).into, args=([], 0))
thread.start()
children = []
while thread.is_alive():
    children.append(os.fork())
    if not children[-1]:
        signal.alarm(20)
        posix_ipc.Semaphore(name)
        os._exit(0)
    time.sleep(0.02)
print({os.waitpid(pid, 0)[1] for pid in children} - {0})
"""


def test_no_child_is_forked_while_a_semaphore_is_opened(semaphore: posix_ipc.Semaphore, tmp_path: Path) -> None:
    """The C library opens it under a lock. A child forked then would inherit it held, and hang at its own open."""
    environment = preloading(A_LONG_TIME_OVER_OPENING, tmp_path)
    command = [sys.executable, "-c", FORK_AND_OPEN, NAME]
    run = subprocess.run(command, env=environment, timeout=60, check=True, capture_output=True, text=True)
    assert run.stdout == "set()\n"
