"""The report at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.step.operations import OPERATIONS
from tools.step.run import Findings, Way

RECORD: Final = Path(__file__).with_name("record.json")
"""Numbers of all points, when they were last tried."""

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


def record(findings: Sequence[Findings], way: Way) -> None:
    """Note the numbers of points in `RECORD`, beside those of other ways and operations."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for of in findings:
        row = known.setdefault(of.operation.name, {})
        row |= {"instructions": of.instructions, "stores": of.stores} if way is Way.KILL else {"stores": of.stores}
        row[way.name.lower()] = {"points": len(of.outcomes), "survived": of.survived}
        if way is Way.STOP:
            row["stop"]["holding"] = of.holding
    RECORD.write_text(json.dumps({name: known[name] for name in OPERATIONS if name in known}, indent=1) + "\n")


def as_table() -> str:
    """Return what is in `RECORD`, for the documents."""
    known = json.loads(RECORD.read_text())
    lines = [
        "| operation | instructions | stores | killed | stopped | of these holding a lock | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in known.items():
        cells = [
            f"{row['instructions']:,}",
            f"{row['stores']:,}",
            *(_survived(row.get(way)) for way in ("kill", "stop")),
        ]
        lines.append(
            f"| {' | '.join((f'`{name}`', *cells, str(row['stop']['holding']), _survived(row.get('pairs'))))} |"
        )
    return "\n".join(lines)


def _survived(of: Mapping[str, int] | None) -> str:
    if of is None:
        return ""
    return f"{of['points']:,}" if of["survived"] == of["points"] else f"**{of['survived']:,} of {of['points']:,}**"


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
