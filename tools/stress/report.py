"""The report of a run, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tools.stress.options import Options
from tools.stress.outcome import Outcome


def as_json(options: Options, outcome: Outcome) -> dict[str, Any]:
    """Return the report as JSON can hold it."""
    verdict = outcome.verdict
    return {
        "held": not outcome.problems,
        "problems": outcome.problems,
        "options": {name: value for name, value in asdict(options).items() if name != "json"},
        "counts": outcome.counts,
        "records": asdict(verdict),
        "slab": asdict(outcome.slab) if outcome.slab else None,
        "seconds": outcome.seconds,
        "longest_stall_s": outcome.longest_stall_s,
        "longest_wait_s": outcome.longest_wait_s,
        "soak": outcome.soak.figures() if outcome.soak else None,
    }


def as_text(options: Options, outcome: Outcome) -> str:
    """Return the report for people."""
    verdict, slab = outcome.verdict, outcome.slab
    lines = [f"seed {options.seed}", ""]
    rate = verdict.appended / outcome.seconds if outcome.seconds else 0.0
    lines += _rows(("appended", f"{verdict.appended:,} records, {rate:,.0f} a second for {outcome.seconds:.0f} s"))
    if not options.pyspark:
        cut_short = f"{verdict.in_doubt:,} in calls that a kill cut short, {verdict.in_doubt_found:,} of them found"
        lines += _rows(
            ("acknowledged", f"{verdict.acknowledged:,}, as far as producers lived to hear of it"),
            ("in doubt", cut_short),
        )
    lines += _rows(("found", f"{verdict.records:,} records with {verdict.bytes:,} bytes of values"))
    lines += _rows(*((what, f"{count:,}") for what, count in outcome.counts.items()))
    if slab:
        lines += _rows(
            ("senders", f"{slab.senders:,}"),
            ("batches", f"{slab.batches_sent:,} sent, {slab.batches_retried:,} sent again"),
            ("waits for memory", f"{slab.memory_waits:,}"),
            ("locks taken over", f"{slab.takeovers:,}"),
            ("indexes rebuilt", f"{slab.rebuilds:,}"),
            ("slots reclaimed", f"{slab.reclaimed_slots:,}"),
        )
    if outcome.longest_stall_s is not None:
        lines += _rows(
            ("longest stall", f"{outcome.longest_stall_s:.2f} s without a record of anybody"),
            ("longest wait", f"{outcome.longest_wait_s:.2f} s of one producer that was not stopped"),
        )
    if outcome.soak:
        lines += _soak_rows(outcome.soak.figures())
    lines += ["", *_rows(*((kind, f"{count:,}") for kind, count in verdict.counts.items())), ""]
    lines += [f"  WRONG: {problem}" for problem in outcome.problems]
    if not outcome.problems:
        lines.append("  All zero: every record is in the log once, whole and in order, and nothing was left behind.")
    return "\n".join(lines)


def _rows(*rows: tuple[str, str]) -> list[str]:
    return [f"  {name:<22}{value}" for name, value in rows]


def _soak_rows(figures: dict[str, Any]) -> list[str]:
    rows = [
        (
            what,
            f"{of['memory_second_quarter']:,.0f} bytes, at last {of['memory_last_quarter']:,.0f}; "
            f"{of['descriptors_second_quarter']:g} descriptors, at last {of['descriptors_last_quarter']:g}",
        )
        for what, of in figures["processes"].items()
    ]
    return _rows(
        *rows,
        ("/dev/shm", f"{figures['shared_bytes_last']:,} bytes, at most {figures['shared_bytes_most']:,}"),
        ("records a minute", ", ".join(f"{count:,}" for count in figures["records_per_minute"])),
    )
