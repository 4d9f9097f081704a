"""Reads facts about processes from /proc, and the limits of their cgroups, as containers set them.

This module is at the bottom: it imports nothing of the package, since tools use it before anything is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

CGROUPS: Final = "/sys/fs/cgroup"
OWN_CGROUPS: Final = "/proc/self/cgroup"


def start_time(pid: int | str) -> int:
    """Return a process's start time in clock ticks since boot; 0 if it is dead or does not exist.

    Raises:
        OSError: /proc cannot be read, for example without a free descriptor.
    """
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped a process; False where /proc does not show it."""
    try:
        return _stat(pid)[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def ancestors() -> Iterator[int]:
    """Yield the pids of this process's ancestors, the nearest first, without init. Raises OSError: one has ended."""
    pid = os.getppid()
    while pid > 1:
        yield pid
        pid = int(_stat(pid)[1])


def _stat(pid: int | str) -> list[bytes]:
    """Return the fields of a process's state, from `state` on."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, can contain spaces and parentheses: count from the last one.
        return file.read().rpartition(b")")[2].split()


def pid_namespace() -> int:
    """Return the inode of this process's pid namespace; 0 where /proc does not show it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def memory_limit() -> int | None:
    """Return the least memory limit in bytes of this process's cgroup and those above; None without one."""
    limits = []
    for place in _cgroups("memory"):
        with suppress(ValueError):  # "max" is no number
            limits.append(int(_read(place, "memory.max") or _read(place, "memory.limit_in_bytes")))
    return min(limits, default=None)


def usable_cores() -> int:
    """Return how many cores this process can use at once: by its affinity, and by the CPU quotas of its cgroups.

    A quota of one and a half cores counts as one.
    """
    cores = [len(os.sched_getaffinity(0))]
    for place in _cgroups("cpu"):
        # cgroup v2 has both in one file.
        quota = _read(place, "cpu.max") or f"{_read(place, 'cpu.cfs_quota_us')} {_read(place, 'cpu.cfs_period_us')}"
        with suppress(ValueError, ZeroDivisionError):  # "max" is no number, nor is what is not there
            microseconds, period = map(int, quota.split())
            if microseconds > 0:  # -1: no limit
                cores.append(max(1, microseconds // period))
    return min(cores)


def _cgroups(controller: str) -> Iterator[str]:
    """Yield the directories of this process's cgroup and of those above; a container need not see them all."""
    try:
        with open(OWN_CGROUPS) as file:
            lines = [line for line in file.read().splitlines() if line.count(":") >= 2]
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            place = path.strip("/").split("/")
            for depth in range(len(place) + 1):
                yield os.path.join(CGROUPS, controllers, *place[:depth])


def _read(directory: str, name: str) -> str:
    """Return the text of a cgroup's file; empty if it has none."""
    try:
        with open(os.path.join(directory, name)) as file:
            return file.read()
    except OSError:
        return ""
