"""A wait for a semaphore lasts for its timeout, even if the wall clock is set meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest
from runs import run_python

from shmaccum._core import SemaphoreWait
from shmaccum.shm import names

NAME = f"{names.before_semaphores()}shmaccum-clockwait{os.getpid()}"


@pytest.fixture
def semaphore() -> Iterator[posix_ipc.Semaphore]:
    made = posix_ipc.Semaphore(NAME, posix_ipc.O_CREX, mode=0o600, initial_value=0)
    yield made
    with contextlib.suppress(posix_ipc.ExistentialError):
        made.unlink()
    made.close()


def test_a_semaphore_that_is_not_there_is_an_error(semaphore: posix_ipc.Semaphore) -> None:
    semaphore.unlink()
    with pytest.raises(FileNotFoundError, match=NAME[1:]):
        SemaphoreWait(NAME)


def run_preloaded(source: str, directory: Path, script: str) -> str:
    """Run a script in a process with other functions of the C library; return its output."""
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler: apt-get install gcc libc6-dev"
    (directory / "own.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", directory / "own.so", directory / "own.c", "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    environment = os.environ | {"LD_PRELOAD": str(directory / "own.so"), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = run_python("-c", script, NAME, env=environment, timeout_s=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


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
import sys
from shmaccum._core import SemaphoreWait
unit = []
SemaphoreWait(sys.argv[1]).into(unit, 0.2)
print(unit)
"""


@pytest.mark.usefixtures("semaphore")
def test_setting_back_the_clock_does_not_extend_a_wait(tmp_path: Path) -> None:
    """The process's clock is an hour ahead: as if it were set back during the wait."""
    assert run_preloaded(AN_HOUR_AHEAD, tmp_path, WAIT) == "[]\n"


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
from shmaccum._core import SemaphoreWait
name = sys.argv[1]
thread = threading.Thread(target=SemaphoreWait, args=(name,))
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


@pytest.mark.usefixtures("semaphore")
def test_no_child_is_forked_while_a_semaphore_is_opened(tmp_path: Path) -> None:
    """The C library opens it under a lock. A child forked then would inherit it held, and hang at its own open."""
    assert run_preloaded(A_LONG_TIME_OVER_OPENING, tmp_path, FORK_AND_OPEN) == "set()\n"
