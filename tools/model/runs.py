"""The runs, of runs.toml: the models in several sizes, and mutants, each with the property that it must violate."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

with Path(__file__).with_name("runs.toml").open("rb") as _file:
    _RUNS: Final = tomllib.load(_file)
PROPERTIES: Final[dict[str, str]] = _RUNS["properties"]
"""Name -> what `pan` reports when it is violated."""


@dataclass(frozen=True)
class Run:
    """One run of spin.

    Attributes:
        name: what to call it by.
        model: file name of the model.
        defines: its size and mutation, as the C preprocessor takes them.
        violates: the property that a mutant must be found to violate; empty for a model that must hold.
        long: worth an optimizing compiler, which takes ten times as long as a plain one.
    """

    name: str
    model: str
    defines: dict[str, int] = field(default_factory=dict)
    violates: str = ""
    long: bool = False

    @property
    def progress(self) -> bool:
        """Whether to look for cycles without progress, under weak fairness, rather than for wrong states."""
        return "LIVE" in self.defines


def _models(size: str) -> tuple[Run, ...]:
    of_models = _RUNS[size].items()
    return tuple(
        Run(name, model, defines, long=size == "full") for model, runs in of_models for name, defines in runs.items()
    )


BRIEF: Final = _models("brief")
FULL: Final = _models("full")
MUTANTS: Final = tuple(
    Run(name, model, {**each["defines"], f"M_{name}": True}, each["violates"])
    for model, mutants in _RUNS["mutants"].items()
    for each in mutants
    for name in each["names"]
)
