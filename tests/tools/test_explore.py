"""The explorer: the scenarios hold over the core as it is, and what is broken on purpose is found."""

from __future__ import annotations

import os
import platform
import random
from datetime import date

import pytest

from tools.explore.__main__ import main
from tools.explore.build import CORE
from tools.explore.mutants import MUTANTS, RACES, SCENARIOS, THREADED, Mutant
from tools.explore.run import explored, raced

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its coroutines switch stacks as x86-64 does")

SEED = int(os.environ.get("STEP_SEED", date.today().toordinal()))
"""Of the mutants of the day."""
TRIED = 1
"""Mutants a day. All of them: ``python -m tools.explore --mutants``."""


def test_every_schedule_of_the_scenarios_holds() -> None:
    found = explored(SCENARIOS)
    assert [(scenario, each.violation, each.trace) for scenario, each in zip(SCENARIOS, found, strict=True)] == [
        (scenario, None, "") for scenario in SCENARIOS
    ]
    assert all(each.states > 1000 and each.ends for each in found)


@pytest.mark.parametrize("mutant", [*MUTANTS, *RACES], ids=lambda mutant: mutant.name)
def test_what_a_mutant_changes_is_there_once(mutant: Mutant) -> None:
    assert (CORE / mutant.file).read_text().count(mutant.old) == 1


@pytest.mark.parametrize("name", [each.name for each in random.Random(SEED).sample(MUTANTS, TRIED)])
def test_a_mutant_is_found(name: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == name)
    (found,) = explored([mutant.scenario], mutant)
    assert found.violation is not None
    assert mutant.said in found.violation
    assert set(found.trace) <= set("012abcABC")


def test_no_scenario_has_a_data_race() -> None:
    assert raced(THREADED) == ""


def test_a_data_race_is_found() -> None:
    mutant = random.Random(SEED).choice(RACES)
    assert mutant.said in raced([mutant.scenario], mutant)


def test_misuse() -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--nothing"])
    assert exit_.value.code == 2
