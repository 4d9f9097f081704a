"""Watches the producers' progress: the longest stall, and a progress line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from tools.stress.fleet import Fleet
from tools.support.processes import Children

_LINE_EVERY_S: Final = 10.0
_TERMINAL_LINE_EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Pace:
    """The number of records that a producer has appended, and the time of the last change."""

    appended: int
    moved_s: float


class Watch:
    """Measures stalls; called periodically with the time in monotonic seconds.

    Attributes:
        longest_stall_s: longest time in which no producer appended anything, from the first record on.
        longest_wait_s: longest time in which one producer, alive and not stopped, appended nothing.
    """

    def __init__(self, children: Children, fleet: Fleet, seconds: float) -> None:
        self._children = children
        self._fleet = fleet
        self._seconds = seconds
        self._started_s = -1.0
        self._all = _Pace(0, 0.0)
        self._each: dict[int, _Pace] = {}
        self._next_line_s = 0.0
        self._terminal = sys.stderr.isatty()
        self.longest_stall_s = 0.0
        self.longest_wait_s = 0.0

    def look(self, now_s: float) -> None:
        """Look once."""
        fleet = self._fleet
        if self._started_s < 0:
            self._started_s = now_s
        appended = fleet.look()
        if appended != self._all.appended:
            self._all = _Pace(appended, now_s)
        elif appended:
            self.longest_stall_s = max(self.longest_stall_s, now_s - self._all.moved_s)
        for member in fleet.members.values():
            pace = self._each.get(member.pid)
            if pace is None or pace.appended != member.appended or self._children.is_stopped(member.pid):
                self._each[member.pid] = _Pace(member.appended, now_s)
            else:
                self.longest_wait_s = max(self.longest_wait_s, now_s - pace.moved_s)
        living = {member.pid for member in fleet.members.values()}
        self._each = {pid: pace for pid, pace in self._each.items() if pid in living}
        self._show(now_s - self._started_s)

    def _show(self, elapsed_s: float) -> None:
        if elapsed_s < self._next_line_s:
            return
        self._next_line_s = elapsed_s + (_TERMINAL_LINE_EVERY_S if self._terminal else _LINE_EVERY_S)
        counts = self._children.counts
        line = (
            f"{elapsed_s:4.0f} of {self._seconds:.0f} s: {self._all.appended:,} records appended; killed "
            f"{counts['producers killed']} producers and {counts['senders killed']} senders, stopped "
            f"{counts['producers stopped'] + counts['senders stopped']}; longest stall {self.longest_stall_s:.1f} s"
        )
        print(line, end="\r" if self._terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the progress line."""
        if self._terminal:
            print(file=sys.stderr)
