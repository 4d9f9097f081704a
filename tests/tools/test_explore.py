"""The explorer: the scenarios hold over the core as it is, and what is broken on purpose is found."""

from __future__ import annotations

import os
import platform
import random
from datetime import date

import pytest

from tools.explore.build import CORE
from tools.explore.mutants import MUTANTS, RACES, SCENARIOS, THREADED
from tools.explore.run import explored, raced

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its coroutines switch stacks as x86-64 does")

SEED = int(os.environ.get("STEP_SEED", date.today().toordinal()))
"""Of the mutant of the day. All of them: ``python -m tools.explore --mutants``, and with ``--threads``."""


def test_every_schedule_of_the_scenarios_holds() -> None:
    found = explored(SCENARIOS)
    assert [(scenario, each.violation, each.trace) for scenario, each in zip(SCENARIOS, found, strict=True)] == [
        (scenario, None, "") for scenario in SCENARIOS
    ]
    assert all(each.states > 1000 and each.ends for each in found)


def test_what_a_mutant_changes_is_there_once() -> None:
    for mutant in (*MUTANTS, *RACES):
        assert (CORE / mutant.file).read_text().count(mutant.old) == 1, mutant.name


def test_no_scenario_has_a_data_race() -> None:
    assert raced(THREADED) == ""


def test_the_mutant_of_the_day_is_found() -> None:
    """On one day by the explorer, on the next by ThreadSanitizer: each of them compiles the core for it."""
    mutant = random.Random(SEED).choice(MUTANTS if SEED % 2 else RACES)
    if mutant in RACES:
        assert mutant.said in raced([mutant.scenario], mutant)
        return
    (found,) = explored([mutant.scenario], mutant)
    assert found.violation is not None
    assert mutant.said in found.violation
    assert set(found.trace) <= set("012abcABCpqr")
