"""Runs scenarios in a process of its own, which a mutant can crash."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from tools.explore.build import build
from tools.explore.mutants import Mutant, Scenario
from tools.support.compiling import sanitizer_library


class Finding(NamedTuple):
    """What the explorer found.

    Attributes:
        violation: what is wrong; None if nothing.
        trace: the choices up to there: `0` lets process 0 take a step, `p` too if the world does otherwise, `a` kills
            it, `A` lets its oldest store reach memory.
        states: how many there are.
        transitions: between them.
        ends: states in which no process can go on.
        deepest: most choices in a row.
    """

    violation: str | None
    trace: str
    states: int
    transitions: int
    ends: int
    deepest: int


def explored(scenarios: Sequence[Scenario], change: Mutant | None = None) -> list[Finding]:
    """Explore scenarios over the core, or over one that is changed, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        return processes.submit(_explore, scenarios, change).result()


def _explore(scenarios: Sequence[Scenario], change: Mutant | None) -> list[Finding]:
    changes = {} if change is None else {change.file: (change.old, change.new)}
    built: dict[str, ModuleType] = {}
    for file in {scenario.file for scenario in scenarios}:
        with tempfile.TemporaryDirectory() as directory:
            built[file] = build(Path(directory), file, changes)
    return [
        Finding(*built[each.file].run(each.name, each.processes, each.deaths, **each.options)) for each in scenarios
    ]


ROUNDS: Final = 100
"""How often the threads run a scenario. A data race is found whatever the schedule is, if both accesses are made."""
_SANITIZER: Final = "halt_on_error=1:exitcode=66:report_signal_unsafe=0"


def raced(scenarios: Sequence[Scenario], change: Mutant | None = None) -> str:
    """Run scenarios by real threads, without deaths; return what ThreadSanitizer reports or a scenario finds wrong.

    Raises:
        FileNotFoundError: the compiler has no ThreadSanitizer.
    """
    environment = {**os.environ, "LD_PRELOAD": sanitizer_library("tsan"), "TSAN_OPTIONS": _SANITIZER}
    what = pickle.dumps((scenarios, change)).hex()
    code = f"import pickle, tools.explore.run as run; run.race(*pickle.loads(bytes.fromhex({what!r})))"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stderr or f"exit status {ended.returncode}"


def race(scenarios: Sequence[Scenario], change: Mutant | None) -> None:
    """Run scenarios by threads, in a process that has been started with ThreadSanitizer."""
    changes = {} if change is None else {change.file: (change.old, change.new)}
    del os.environ["LD_PRELOAD"]  # the compiler runs without it
    for file in sorted({scenario.file for scenario in scenarios}):
        with tempfile.TemporaryDirectory() as directory:
            built = build(Path(directory), file, changes, with_threads=True)
        for each in scenarios:
            for _ in range(ROUNDS if each.file == file else 0):
                violation, *_ = built.run(each.name, each.processes, 0, **each.options)
                if violation:
                    sys.exit(f"{each}: {violation}")
