"""Processes as /proc shows them. Uses only the standard library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def pids() -> Iterator[int]:
    yield from map(int, filter(str.isdigit, os.listdir("/proc")))


def read(pid: int, file: str) -> bytes:
    """Return a file of a process's /proc, nothing if the process has gone or is not ours to look at."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def command_of(pid: int) -> str:
    """Return a process's command line, empty if there is no such process."""
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
