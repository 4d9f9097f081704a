"""The report at the end of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.step.operations import OPERATIONS
from tools.step.run import Findings, Way

RECORD: Final = Path(__file__).with_name("record.json")
"""Numbers of all points, when they were last tried."""

_SHOWN: Final = 3
"""Most points of an operation whose problems are shown in full."""


def as_text(findings: Sequence[Findings], way: Way) -> str:
    """Return a table, and the problems of the points that failed."""
    lines = [_line("operation", "instr.", "stores", "points", "holding", "survived", "recovery")]
    rows = [(of.instructions, of.stores, len(of.outcomes), of.holding, of.survived) for of in findings]
    for of, row in zip(findings, rows, strict=True):
        slowest_ms = max(outcome.recovery_ms for outcome in of.outcomes)
        lines.append(_line(of.operation.name, *row, f"{slowest_ms:,.0f} ms"))
    lines.append(_line("all", *map(sum, zip(*rows, strict=True))))
    for of in findings:
        for outcome in of.failed[:_SHOWN]:
            lines.append(f"\n{of.operation.name}, {outcome.plan}, {way.value} before {outcome.place}:")
            lines += [f"  {line}" for problem in outcome.problems for line in problem.splitlines()]
        if of.failed[_SHOWN:]:
            others = "; ".join(str(outcome.plan) for outcome in of.failed[_SHOWN:])
            lines.append(f"\n{of.operation.name}: the same or other problems at {others}")
    return "\n".join(lines)


def _line(name: str, *columns: str | int) -> str:
    texts = (f"{column:,}" if isinstance(column, int) else column for column in columns)
    return f"{name:<28}" + "".join(f" {text:>9}" for text in texts)


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
    lines = [
        "| operation | instructions | stores | killed | stopped | of these holding a lock | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in json.loads(RECORD.read_text()).items():
        killed, stopped, pairs = (_survived(row.get(way)) for way in ("kill", "stop", "pairs"))
        numbers = f"{row['instructions']:,} | {row['stores']:,} | {killed} | {stopped} | {row['stop']['holding']}"
        lines.append(f"| `{name}` | {numbers} | {pairs} |")
    return "\n".join(lines)


def _survived(of: Mapping[str, int] | None) -> str:
    if of is None:
        return ""
    return f"{of['points']:,}" if of["survived"] == of["points"] else f"**{of['survived']:,} of {of['points']:,}**"
