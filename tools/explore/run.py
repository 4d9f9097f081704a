"""Runs the explorer in a process of its own, which a mutant can crash."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tools.explore.build import build
from tools.explore.mutants import Mutant, Scenario


class Finding(NamedTuple):
    """What the explorer found.

    Attributes:
        violation: what is wrong; None if nothing.
        trace: the choices up to there: `0` lets process 0 take a step, `a` kills it.
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
