"""Be interrupted just before any line of code; or die at a moment that the test chooses.

A line is named by its place among all lines of some modules that an action runs, from 0 on. Who dies does so in a
forked child, which inherits what the test is attached to and is a process of its own. Deaths at every moment there is
are the business of `tools.step`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count
from types import FrameType, ModuleType
from typing import Any

from faults import die as die

Action = Callable[[], object]
Place = tuple[str, int]
"""File and number of a line."""


def lines_here(action: Action, *modules: ModuleType, hits: int = 1) -> list[int]:
    """Return the lines of some modules that an action, run in this very process, goes through, in their order.

    Each is there ``hits`` times at most.
    """
    seen: Counter[Place] = Counter()
    found: list[int] = []

    def note(number: int, place: Place) -> None:
        seen[place] += 1
        if seen[place] <= hits:
            found.append(number)

    _trace(action, modules, note)
    assert found
    return found


def die_in(action: Action) -> None:
    """Run an action in a child; it calls `die` itself."""
    pid = os.fork()
    if not pid:
        try:
            action()
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status), "the child did not die"
    assert os.WTERMSIG(status) == signal.SIGKILL


def interrupt_before(line: int, action: Action, *modules: ModuleType) -> bool:
    """Run an action in this very process, with a KeyboardInterrupt before a line; return whether it got there."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        _act_before(line, interrupt, action, modules)
        return False
    return True


def die_before(line: int, action: Action, *modules: ModuleType) -> None:
    """Run an action, and die just before a line of it, or at its end."""
    _act_before(line, die, action, modules)
    die()


def _act_before(line: int, act: Action, action: Action, modules: tuple[ModuleType, ...]) -> None:
    def look(number: int, place: Place) -> None:
        if number == line:
            sys.settrace(None)
            act()

    _trace(action, modules, look)


def _trace(action: Action, modules: tuple[ModuleType, ...], at_line: Callable[[int, Place], object]) -> None:
    """Run an action; call ``at_line(number, place)`` before each line of some modules."""
    files = {module.__file__ for module in modules}
    numbers = count()

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            at_line(next(numbers), (frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        action()
    finally:
        sys.settrace(before)
