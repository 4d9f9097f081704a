"""Measures processor time and memory of all descendants of this process, by kind.

The tool is a subreaper (`tools.support.processes`): a contestant's processes stay its descendants, even if they detach
themselves. The tool, or a process in between, waits for them. So the time of a process is in the process
itself or, after its exit, in the parent that waited for it.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tools.support.proc import pids, read

BROKER: Final = "broker"
WORKERS: Final = "workers"
SENDER: Final = "sender"
JVM: Final = "jvm"
ENDED: Final = "ended"
"""Processes that have exited: their kind is no longer known."""

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    pid: int
    parent: int
    started: int
    command: str
    system_s: float
    ended_children_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources used by processes so far.

    Attributes:
        seconds: of processor time, user and system, by kind.
        system_s: the part in the kernel, in clock ticks; without the broker and exited processes.
    """

    seconds: Mapping[str, float]
    system_s: float

    def since(self, before: Usage) -> Usage:
        kinds = self.seconds.keys() | before.seconds.keys()
        return Usage(
            {kind: self.seconds.get(kind, 0.0) - before.seconds.get(kind, 0.0) for kind in kinds},
            self.system_s - before.system_s,
        )

    @property
    def contestant_s(self) -> float:
        """Processor time of all but the broker."""
        return sum(seconds for kind, seconds in self.seconds.items() if kind != BROKER)


class Meter:
    """Reads the usage of all descendants of this process.

    The time of a process that exits goes to the parent that waits for it. It is lost if the parent ignores SIGCHLD, as
    the daemon does that Spark forks its workers from. For children of such a parent the last observation counts; one
    that starts and exits between two observations is missed.
    """

    def __init__(self) -> None:
        self._unwaited: dict[tuple[int, int], tuple[str, float]] = {}
        """Pid and start time -> kind and seconds."""

    def usage(self, brokers: Collection[int], workers: Collection[int]) -> Usage:
        """Observe all processes.

        Args:
            brokers: pids of the processes that brokers descend from.
            workers: pids that contestants descend from; an orphan that descends from neither is a sender.
        """
        seconds: dict[str, float] = defaultdict(float)
        system_s = 0.0
        for process, kind in _descendants(brokers, workers):
            used = clock(process.pid) + process.ended_children_s
            if _ignores_children(process.parent):
                self._unwaited[process.pid, process.started] = (kind, used)
            else:
                seconds[kind] += used
            if kind != BROKER:
                system_s += process.system_s
        for kind, used in self._unwaited.values():
            seconds[kind] += used
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[ENDED] += ended.ru_utime + ended.ru_stime
        return Usage(dict(seconds), system_s)


def memory(brokers: Collection[int], workers: Collection[int]) -> int:
    """Return the bytes of memory of all processes except the brokers', each shared page counted once (PSS)."""
    pids = (process.pid for process, kind in _descendants(brokers, workers) if kind != BROKER)
    lines = (line for pid in pids for line in read(pid, "smaps_rollup").splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))


def others(brokers: Collection[int]) -> list[int]:
    """Return the pids of all descendants except the brokers', including those that are exiting."""
    return [process.pid for process, kind in _descendants(brokers, ()) if kind != BROKER]


def _descendants(brokers: Collection[int], workers: Collection[int]) -> Iterator[tuple[_Process, str]]:
    table = {process.pid: process for process in _processes()}
    me = os.getpid()
    for process in table.values():
        above = process
        while above.parent != me and above.parent in table:
            above = table[above.parent]
        if above.parent != me:
            continue
        if above.pid in brokers:
            yield process, BROKER
        elif process.command == "java":
            yield process, JVM
        else:
            yield process, WORKERS if above.pid in workers else SENDER


def _processes() -> Iterator[_Process]:
    for pid in pids():
        head, _, rest = read(pid, "stat").decode(errors="replace").rpartition(")")
        if fields := rest.split():
            yield _Process(
                pid,
                int(fields[1]),
                int(fields[19]),
                head.partition("(")[2],
                int(fields[12]) * _TICK_S,
                (int(fields[13]) + int(fields[14])) * _TICK_S,
            )


def _ignores_children(pid: int) -> bool:
    ignored = read(pid, "status").partition(b"SigIgn:")[2].split()[:1]
    return bool(ignored and int(ignored[0], 16) >> (signal.SIGCHLD - 1) & 1)


def clock(pid: int) -> float:
    """Return a process's processor time from its clock, because /proc counts in ticks of 10 ms."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) returns it
    except OSError:
        return 0.0
