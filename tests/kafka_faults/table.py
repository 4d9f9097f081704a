"""The table of what came of the faults: a row for each trial, in the order of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafka_faults.trial import Row, Trial

_HEADINGS = ("sent", "acknowledged", "found", "duplicated", "out of order")


class Table:
    """Where a test puts its rows.

    Args:
        note: takes each row.
    """

    def __init__(self, note: Callable[[Row], None]) -> None:
        self._note = note

    def finish(self, trial: Trial) -> Row:
        """Finish a trial; note and return its row."""
        trial.finish()
        row = trial.row()
        self._note(row)
        return row

    def all_arrive(self, trial: Trial) -> None:
        """Finish a trial, after some more records: every record was acknowledged, and is in the log."""
        trial.await_heard()
        row = self.finish(trial)
        assert row.all_arrived(), row

    def finish_by_topic(self, trial: Trial, *what: str) -> list[Row]:
        """Finish a trial; note and return a row for each topic, with what it is."""
        trial.finish()
        rows = [trial.row([topic], each) for topic, each in zip(trial.topics, what, strict=True)]
        for row in rows:
            self._note(row)
        return rows


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table as text, if there are rows."""
    if not rows:
        return
    width = max(len(row.fault) for row in rows)
    yield " ".join(["fault".ljust(width), *(f"{heading:>12}" for heading in _HEADINGS), " errors"])
    for row in rows:
        numbers = (row.sent, row.acknowledged, row.found, row.duplicated, row.out_of_order)
        errors = ", ".join(f"{count:,} {name}" for name, count in sorted(row.errors.items()))
        in_spite = f" ({row.stored_in_spite:,} of them stored)" if row.stored_in_spite else ""
        cells = [row.fault.ljust(width), *(f"{number:>12,}" for number in numbers), f" {errors}{in_spite}"]
        yield " ".join(cells).rstrip()
