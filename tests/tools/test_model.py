"""The models hold and their mutants are found, and what they say that they model is there."""

from __future__ import annotations

import ast
import os
import re
import time
from pathlib import Path

import pytest
from fixture_types import Capture

from tools.model.check import Result, check_all, missing_tools, verdict
from tools.model.runs import BRIEF, FULL, MUTANTS, PROPERTIES, Run

ROOT = Path(__file__).parents[2]
NAMES = ("lock.pml", "exactly_once.pml")
MODELS = {name: (ROOT / "tools" / "model" / name).read_text() for name in NAMES}
CITED = sorted({name for text in MODELS.values() for name in re.findall(r"^ \*\s+(shmaccum(?:\.\w+)+)", text, re.M)})


DAY_S = 24 * 60 * 60
PARTS = 12
"""Of the mutants one part is tried each day. All of them: ``python -m tools.model``."""


# --- what the models say of the code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CITED)
def test_what_a_model_cites_is_there_and_its_module_names_the_model(name: str) -> None:
    parts = name.split(".")
    models = [model for model, text in MODELS.items() if re.search(rf"{re.escape(name)}\b", text)]
    included = ROOT.joinpath(*parts[:-1]).with_suffix(".pxi")
    if included.exists():
        text = included.read_text()
        assert re.search(rf"^cdef (inline )?\w+ {parts[-1]}\(", text, re.M)
        unnamed = [model for model in models if f"tools/model/{model}" not in text]
        assert not unnamed, f"{included.relative_to(ROOT)} does not name {unnamed}"
        return
    depth = next(depth for depth in range(1, len(parts)) if ROOT.joinpath(*parts[:depth]).with_suffix(".py").exists())
    module = ast.parse(ROOT.joinpath(*parts[:depth]).with_suffix(".py").read_text())
    found: ast.AST = module
    for part in parts[depth:]:
        assert isinstance(found, ast.Module | ast.ClassDef)
        found = next(each for each in found.body if getattr(each, "name", "") == part)
    assert isinstance(found, ast.FunctionDef)
    said = ast.get_docstring(module) or ""
    assert any(f"tools/model/{model}" in said for model in models), f"the module of {name} does not name {models}"


@pytest.mark.parametrize("model", MODELS)
def test_every_mutation_of_a_model_is_checked(model: str) -> None:
    there = set(re.findall(r"#(?:ifdef|ifndef|if defined\() ?(M_\w+)", MODELS[model]))
    assert there == {name for run in MUTANTS if run.model == model for name in run.defines if name.startswith("M_")}


# --- the check --------------------------------------------------------------------------------------------------------

HOLDS = Run("holds", "lock.pml")
MUTANT = Run("mutant", "lock.pml", violates="TWO_INSIDE")
FOUND = PROPERTIES["TWO_INSIDE"] + " (at depth 9)"


@pytest.mark.parametrize(
    ("run", "violation", "failure", "wrong"),
    [
        (HOLDS, "", "", ""),
        (HOLDS, FOUND, "", FOUND),
        (HOLDS, "", "out of memory", "did not come to its end"),
        (MUTANT, FOUND, "", ""),
        (MUTANT, "", "", "was not found; it must violate TWO_INSIDE"),
        (MUTANT, PROPERTIES["HALF_DONE_SEEN"], "", "was found by another property than TWO_INSIDE"),
    ],
)
def test_a_result_is_judged(run: Run, violation: str, failure: str, wrong: str) -> None:
    said = verdict(run, Result(1, 1, 1.0, violation, failure))
    assert said.startswith(wrong)
    assert bool(said) == bool(wrong)


def test_runs_are_distinguishable() -> None:
    names = [run.name for run in (*BRIEF, *FULL, *MUTANTS)]
    assert len(set(names)) == len(names)


@pytest.mark.timeout(1800)
def test_the_models_hold_and_the_mutants_of_the_day_are_found(capsys: Capture) -> None:
    missing = missing_tools()
    if missing and "CI" not in os.environ:
        pytest.skip(missing)
    assert not missing
    today = int(time.time() // DAY_S) % PARTS
    good = check_all((*BRIEF, *MUTANTS[today::PARTS]), jobs=2)
    assert good, capsys.readouterr().out
