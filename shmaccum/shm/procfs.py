"""Reads facts about processes from /proc, and the limits of their cgroups.

This module is at the bottom: it imports nothing of the package, since tools use it before anything is installed.
"""

from __future__ import annotations

import os
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
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, can contain spaces and parentheses: count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    state = fields[0]
    return 0 if state in (b"Z", b"X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped a process; False where /proc does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def pid_namespace() -> int:
    """Return the inode of this process's pid namespace; 0 where /proc does not show it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def memory_limit() -> int | None:
    """Return the least memory limit in bytes of this process's cgroup and those above; None without one."""
    limits = []
    with suppress(OSError, ValueError):
        with open(OWN_CGROUPS) as file:
            lines = file.read().splitlines()
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            limit = "memory.limit_in_bytes" if controllers else "memory.max"
            place = path.strip("/").split("/")
            for depth in range(len(place) + 1):
                # "max" is no number. A container need not see the cgroups above its own.
                with (
                    suppress(OSError, ValueError),
                    open(os.path.join(CGROUPS, controllers, *place[:depth], limit)) as file,
                ):
                    limits.append(int(file.read()))
    return min(limits, default=None)
