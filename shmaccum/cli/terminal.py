"""Prints to the terminal: text for programs and people, and tables whose cells are never cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

_WIDE: Final = 10_000
"""Columns, more than any row has: a terminal wraps a long line, a pipe gets it whole, and rich cuts nothing."""


class _Console(Console):
    """Raises BrokenPipeError for the command to handle; rich's own console would exit with status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling when it calls this


def console() -> Console:
    """Return the standard output, for data: colours on a terminal only, lines of any length."""
    return _Console(width=_WIDE, highlight=False, markup=False, emoji=False)


def table(headings: Iterable[str], rows: Iterable[Iterable[object]], *, left: int = 1) -> Padding:
    """Return a table, indented by two columns; numbers have thousands separators, and None is ``-``.

    ``left`` is the number of text columns at the left; the other columns are numbers, aligned right.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*map(_cell, row))
    return Padding(made, (0, 0, 0, 2), expand=False)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
