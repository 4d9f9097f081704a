"""The table, and the same for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tools.moved_by_one_word.job import Job
from tools.moved_by_one_word.outcome import Outcome, differences

_SHOWN: Final = 100
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
        f"pyspark {versions.pyspark}, Spark's own sink {versions.sink}, Apache Kafka {versions.kafka}",
        "",
        "| job | kafka | shmaccum | the same? | difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in comparisons:
        notes = [] if each.job.differs and each.different else each.different
        note = "; ".join([*notes, *([each.job.note] if each.job.note else [])])
        cells = (each.job.title, _cell(each.kafka), _cell(each.ours), each.verdict, note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    same = sum(not each.different for each in comparisons)
    for name, side in (("kafka", [each.kafka for each in comparisons]), ("shmaccum", [e.ours for e in comparisons])):
        done = [outcome for outcome in side if outcome.refusal is None]
        lines.append("" if name == "kafka" else "")
        lines.append(
            f"{name}: {len(done)} of {len(side)} jobs done, {sum(len(outcome.records) for outcome in done)} records, "
            f"{sum(outcome.duplicates for outcome in done)} duplicates, {sum(outcome.lost for outcome in done)} lost."
        )
    lines += ["", f"{same} of {len(comparisons)} jobs are the same."]
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
    if outcome.refusal is not None:
        text = outcome.refusal.text
        shown = text if len(text) <= _SHOWN else text[:_SHOWN].rstrip() + "..."
        there = f"; {len(outcome.records)} records there" if outcome.records else ""
        return f"`{outcome.refusal.kind}`: {shown}{there}"
    return f"{len(outcome.records)} records, {outcome.duplicates} twice, {outcome.lost} lost"


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "records": len(outcome.records),
        "duplicates": outcome.duplicates,
        "lost": outcome.lost,
        "error": None if outcome.refusal is None else [outcome.refusal.kind, outcome.refusal.text],
    }
