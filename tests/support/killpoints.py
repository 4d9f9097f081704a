"""Be interrupted just before any line of code; or die at a moment that the test chooses.

Who dies does so in a forked child, which inherits what the test is attached to and is a process of its own. Deaths at
every moment there is are the business of `tools.step`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from faults import die as die

Action = Callable[[], object]


class Line(NamedTuple):
    """A point to stop at: the ``hit``-th time that a line is about to run."""

    file: str
    number: int
    hit: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}#{self.hit}"


def lines_here(action: Action, *modules: ModuleType, hits: int = 1) -> list[Line]:
    """Return the lines of some modules that an action, run in this very process, goes through, in their order.

    Each is there ``hits`` times at most.
    """
    found: list[Line] = []
    _trace(action, modules, _collect(found, hits))
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


def interrupt_before(line: Line, action: Action, *modules: ModuleType) -> None:
    """Run an action in this very process; just before a line, a KeyboardInterrupt comes."""

    def interrupt(at: Line) -> None:
        if at == line:
            sys.settrace(None)
            raise KeyboardInterrupt

    try:
        _trace(action, modules, interrupt)
    except KeyboardInterrupt:
        return
    raise AssertionError(f"the action got past {line}")


def interrupt_after(lines: int, action: Action, *modules: ModuleType) -> None:
    """Run an action in this very process; a KeyboardInterrupt comes before line number ``lines`` of some modules."""

    def interrupt(at: Line) -> None:
        nonlocal lines
        lines -= 1
        if lines < 0:
            sys.settrace(None)
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        _trace(action, modules, interrupt)


def die_after(lines: int, action: Action, *modules: ModuleType) -> None:
    """Run an action, and die just before line number ``lines`` of some modules, or at its end."""

    def count(at: Line) -> None:
        nonlocal lines
        lines -= 1
        if lines < 0:
            die()

    _trace(action, modules, count)
    die()


def _collect(found: list[Line], hits: int) -> Callable[[Line], object]:
    return lambda line: found.append(line) if line.hit <= hits else None


def _trace(action: Action, modules: tuple[ModuleType, ...], at_line: Callable[[Line], object]) -> None:
    files = {module.__file__ for module in modules}
    hits: Counter[tuple[str, int]] = Counter()

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            hits[place] += 1
            at_line(Line(*place, hits[place]))
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        action()
    finally:
        sys.settrace(before)
