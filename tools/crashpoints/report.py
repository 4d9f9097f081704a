"""The report at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.crashpoints.run import Findings

_SHOWN: int = 3
"""Most points of an operation whose problems are shown in full."""


def as_text(findings: Sequence[Findings]) -> str:
    """Return a table, and the problems of the points that failed."""
    lines = [f"{'operation':<28} {'steps':>7} {'points':>7} {'at stores':>10} {'survived':>9} {'recovery':>12}"]
    for of in findings:
        slowest = max(outcome.recovery_ms for outcome in of.outcomes)
        lines.append(
            f"{of.operation.name:<28} {of.steps:>7,} {len(of.outcomes):>7,} {of.at_stores:>10,} {of.survived:>9,} "
            f"{slowest:>9,.0f} ms"
        )
    points, survived = sum(len(of.outcomes) for of in findings), sum(of.survived for of in findings)
    steps, at_stores = sum(of.steps for of in findings), sum(of.at_stores for of in findings)
    lines.append(f"{'all':<28} {steps:>7,} {points:>7,} {at_stores:>10,} {survived:>9,}")
    for of in findings:
        for outcome in of.failed[:_SHOWN]:
            lines.append(f"\n{of.operation.name}, step {outcome.step}, killed before {outcome.place}:")
            lines += [f"  {line}" for problem in outcome.problems for line in problem.splitlines()]
        if of.failed[_SHOWN:]:
            others = ", ".join(str(outcome.step) for outcome in of.failed[_SHOWN:])
            lines.append(f"\n{of.operation.name}: the same or other problems at steps {others}")
    return "\n".join(lines)


def as_json(findings: Sequence[Findings]) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        of.operation.name: {
            "steps": of.steps,
            "points": len(of.outcomes),
            "at_stores": of.at_stores,
            "survived": of.survived,
            "slowest_recovery_ms": max(outcome.recovery_ms for outcome in of.outcomes),
            "failed": [
                {"step": outcome.step, "place": outcome.place, "problems": outcome.problems} for outcome in of.failed
            ],
        }
        for of in findings
    }
