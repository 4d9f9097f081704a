"""The report at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.crashpoints.run import Findings, Way

_SHOWN: int = 3
"""Most points of an operation whose problems are shown in full."""


def as_text(findings: Sequence[Findings], way: Way) -> str:
    """Return a table, and the problems of the points that failed."""
    lines = [_line("operation", "instr.", "stores", "points", "holding", "survived", "recovery")]
    for of in findings:
        slowest = max(outcome.recovery_ms for outcome in of.outcomes)
        numbers = of.instructions, of.stores, len(of.outcomes), of.holding, of.survived
        lines.append(_line(of.operation.name, *(f"{number:,}" for number in numbers), f"{slowest:,.0f} ms"))
    sums = [
        sum(of)
        for of in zip(
            *((of.instructions, of.stores, len(of.outcomes), of.holding, of.survived) for of in findings), strict=True
        )
    ]
    lines.append(_line("all", *(f"{number:,}" for number in sums)))
    for of in findings:
        for outcome in of.failed[:_SHOWN]:
            lines.append(f"\n{of.operation.name}, {outcome.plan}, {way.value} before {outcome.place}:")
            lines += [f"  {line}" for problem in outcome.problems for line in problem.splitlines()]
        if of.failed[_SHOWN:]:
            others = "; ".join(str(outcome.plan) for outcome in of.failed[_SHOWN:])
            lines.append(f"\n{of.operation.name}: the same or other problems at {others}")
    return "\n".join(lines)


def _line(name: str, *columns: str) -> str:
    return f"{name:<28}" + "".join(f" {column:>9}" for column in columns)


def as_json(findings: Sequence[Findings]) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        of.operation.name: {
            "instructions": of.instructions,
            "stores": of.stores,
            "points": len(of.outcomes),
            "holding": of.holding,
            "survived": of.survived,
            "slowest_recovery_ms": max(outcome.recovery_ms for outcome in of.outcomes),
            "failed": [
                {**outcome.plan._asdict(), "place": outcome.place, "problems": outcome.problems}
                for outcome in of.failed
            ],
        }
        for of in findings
    }
