"""Die, or be interrupted, just before any line of code: how tests reach every point between two stores.

A store of the slab's is a line of its own, so that to stop before each line is to stop between any two of them. An
action runs in a forked child, which inherits what the test is attached to and is a process of its own.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

Action = Callable[[], object]


class Line(NamedTuple):
    """A point to stop at: the ``hit``-th time that a line is about to run."""

    file: str
    number: int
    hit: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}#{self.hit}"


def lines_of(action: Action, *modules: ModuleType, hits: int = 1) -> list[Line]:
    """Return the lines of some modules that an action runs through, each ``hits`` times at most, in their order.

    The action runs to its end in a child, and what it does to the slab stays done.
    """
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        found: list[Line] = []
        _run(action, modules, _collect(found, hits))
        with os.fdopen(writable, "wb") as file:
            pickle.dump(found, file)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as file:
        lines: list[Line] = pickle.loads(file.read() or pickle.dumps([]))
    assert os.waitpid(pid, 0)[1] == 0
    assert lines
    return lines


def lines_here(action: Action, *modules: ModuleType, hits: int = 1) -> list[Line]:
    """Return the same of an action that is run in this very process."""
    found: list[Line] = []
    _trace(action, modules, _collect(found, hits))
    assert found
    return found


def die_before(line: Line, action: Action, *modules: ModuleType) -> None:
    """Run an action in a child that is killed just before a line."""

    def die_there(at: Line) -> None:
        if at == line:
            die()

    _expect_death(lambda: _run(action, modules, die_there), f"the child got past {line}")


def die_in(action: Action) -> None:
    """Run an action in a child; it calls `die` itself."""
    _expect_death(lambda: _run(action, (), lambda line: None), "the child did not die")


def die(*_: object) -> None:
    """Be killed, now."""
    os.kill(os.getpid(), signal.SIGKILL)


def _expect_death(act: Action, otherwise: str) -> None:
    pid = os.fork()
    if not pid:
        act()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status), otherwise
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


def interrupt_after(lines: int, action: Action, *modules: ModuleType) -> bool:
    """Run an action in this very process; a KeyboardInterrupt comes before line number ``lines`` of some modules.

    Returns:
        Whether the action ran so many lines.
    """

    def interrupt(at: Line) -> None:
        nonlocal lines
        lines -= 1
        if lines < 0:
            sys.settrace(None)
            raise KeyboardInterrupt

    try:
        _trace(action, modules, interrupt)
    except KeyboardInterrupt:
        return True
    return False


def _collect(found: list[Line], hits: int) -> Callable[[Line], object]:
    return lambda line: found.append(line) if line.hit <= hits else None


def _run(action: Action, modules: tuple[ModuleType, ...], at_line: Callable[[Line], object]) -> None:
    """Run an action in a child; the child ends here if it raises."""
    try:
        _trace(action, modules, at_line)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


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
