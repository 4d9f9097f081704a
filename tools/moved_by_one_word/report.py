"""The table, and the same for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tools.moved_by_one_word.job import Job
from tools.moved_by_one_word.outcome import Outcome, differences

_SHOWN: Final = 120
"""Characters of an error."""


@dataclass(frozen=True)
class Versions:
    """What was run."""

    pyspark: str
    sink: str
    kafka: str


@dataclass(frozen=True)
class Comparison:
    """Both runs of a job."""

    job: Job
    kafka: Outcome
    ours: Outcome

    @property
    def different(self) -> list[str]:
        """What is different."""
        return differences(self.job, self.kafka, self.ours)

    @property
    def is_as_known(self) -> bool:
        """Whether it is different where that is known, and nowhere else."""
        return bool(self.different) == self.job.differs

    @property
    def verdict(self) -> str:
        """Whether it is the same, in a word or two."""
        if self.different:
            return "no" if self.job.differs else "**no**"
        both = self.kafka.refusal is not None
        surprise = "" if self.is_as_known else ", **which is new**"
        return ("yes: both refuse" if both else "yes") + surprise


def as_markdown(versions: Versions, comparisons: list[Comparison]) -> str:
    """Return the table."""
    lines = [
        f"pyspark {versions.pyspark}, Spark's own sink of {versions.sink}, Apache Kafka {versions.kafka}. "
        "The numbers are records found / too many / missing.",
        "",
        '| job | `format("kafka")` | `format("shmaccum")` | the same? | difference |',
        "| --- | --- | --- | --- | --- |",
    ]
    for each in comparisons:
        unnamed = [] if each.job.differs else each.different
        note = "; ".join([*unnamed, *([each.job.note] if each.job.note else [])])
        cells = (each.job.title, _cell(each.kafka), _cell(each.ours), each.verdict, note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines.append("")
    for name, outcomes in (
        ("kafka", [each.kafka for each in comparisons]),
        ("shmaccum", [each.ours for each in comparisons]),
    ):
        done = [outcome for outcome in outcomes if outcome.refusal is None]
        lines.append(
            f"* {name}: {len(done)} of {len(outcomes)} jobs done, {sum(len(each.records) for each in done)} records, "
            f"{sum(each.duplicates for each in done)} too many, {sum(each.lost for each in done)} missing"
        )
    lines.append(f"* the same: {sum(not each.different for each in comparisons)} of {len(comparisons)} jobs")
    return "\n".join(lines)


def as_json(versions: Versions, comparisons: list[Comparison]) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "pyspark": versions.pyspark,
        "sink": versions.sink,
        "apache kafka": versions.kafka,
        "jobs": [
            {
                "job": each.job.name,
                "title": each.job.title,
                "kafka": _plain(each.kafka),
                "shmaccum": _plain(each.ours),
                "same": not each.different,
                "different": each.different,
                "as known": each.is_as_known,
                "note": each.job.note,
            }
            for each in comparisons
        ],
    }


def _cell(outcome: Outcome) -> str:
    counted = f"{len(outcome.records)} / {outcome.duplicates} / {outcome.lost}"
    if outcome.refusal is None:
        return counted
    kind, text = outcome.refusal.kind, outcome.refusal.text
    shown = text if len(text) <= _SHOWN else text[:_SHOWN].rstrip() + "..."
    cell = f"`{outcome.refusal.raised}`" + (f" by `{kind}`" if kind != outcome.refusal.raised else "") + f": {shown}"
    return f"{cell} ({counted})" if outcome.records else cell


def _plain(outcome: Outcome) -> dict[str, Any]:
    refusal = outcome.refusal
    return {
        "records": len(outcome.records),
        "duplicates": outcome.duplicates,
        "lost": outcome.lost,
        "error": None if refusal is None else {"raised": refusal.raised, "by": refusal.kind, "text": refusal.text},
    }
