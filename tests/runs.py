"""Ways to run a part of a test: in threads, in another interpreter, with an interrupt at every moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import InterruptAt

ROOT = Path(__file__).resolve().parents[1]
"""The project's directory."""
PATIENCE_S = 250.0


@contextmanager
def threads(count: int, function: Callable[[int], object]) -> Iterator[Callable[[], bool]]:
    """Run ``function(number)`` in ``count`` threads beside the block, and wait for them at its end.

    Yields:
        A function that returns whether one of them still runs.

    Raises:
        BaseException: the first error that one of them raised.
    """
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            function(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    yield lambda: any(thread.is_alive() for thread in running)
    for thread in running:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def in_threads(count: int, function: Callable[[int], object]) -> None:
    """Run ``function(number)`` in ``count`` threads at once; raise the first error that one of them raises."""
    with threads(count, function):
        pass


def run_python(
    *arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with some arguments to its end; return its status and what it printed."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


def interrupts(again: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> Iterator[InterruptAt]:
    """Yield an interrupt at the first moment of the block that enters it, at the second, and so on to the last.

    The last one comes to nothing: the block has fewer moments. The arguments are those of `InterruptAt`.
    """
    for moment in range(3000):
        interrupt = InterruptAt(moment, again, error)
        yield interrupt
        if not interrupt.came:
            return
    pytest.fail("there is no end to the moments")
