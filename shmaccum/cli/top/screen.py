"""Draws ``shmaccum top``: the verdict, the slab in three lines, and the table of the chosen tab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shmaccum.cli.top.history import History, appended, sent
from shmaccum.cli.top.tables import TABS
from shmaccum.errors import escaped
from shmaccum.observe.report import UnreadableSlab
from shmaccum.observe.verdict import Finding, Level, findings
from shmaccum.observe.wording import count, in_bytes, span

_STYLES: Final = {Level.HEALTHY: "bold green", Level.WARNING: "bold yellow", Level.FAULT: "bold red"}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 20
"""Columns of a curve."""
_KEYS: Final = "1-5 tab  s sort  r reverse  / filter  p pause  n next slab  q quit"
HELP: Final = """\
1 to 5, Tab     choose a table
s, S            sort by the next column, or by the one before
r               reverse the order
/               show only rows with a text; Enter ends the input, Esc clears it
up, down        scroll by a row; Page Up and Page Down by ten
p, space        pause: look on while nothing moves
n, N            the next slab, or the one before
q               quit"""


@dataclass(slots=True)
class Choices:
    """What the user has chosen to see."""

    tab: int = 0
    sorted_by: list[int] = field(default_factory=lambda: [tab.sorted_by for tab in TABS])
    """Of each tab."""
    is_reversed: bool = False
    contains: str = ""
    is_typing: bool = False
    is_paused: bool = False
    shows_help: bool = False
    first_row: int = 0


def draw(
    shown: History | UnreadableSlab | None, choices: Choices, width: int, height: int, of: str = ""
) -> RenderableType:
    """Return the screen for a slab's history, or why it cannot be read; None if there is no slab.

    A height of 0 has room for all; ``of`` says which slab of how many this is.
    """
    if not isinstance(shown, History):
        name, why = ("", "there is no slab") if shown is None else (shown.name, shown.error)
        return Group(_head([Finding(Level.FAULT, why)], name, of, choices, width))
    history, slab = shown, shown.slab
    found = findings(slab)
    lines: list[RenderableType] = [_head(found, slab.name, of, choices, width)]
    lines += [
        Text(f"also: {finding.text}", style=_STYLES[finding.level].removeprefix("bold ")) for finding in found[1:3]
    ]
    lines += [*_summary(history, width), _tabs(history, choices)]
    if choices.shows_help:
        return Group(*lines, Text(HELP))
    room = max(1, height - len(lines) - 2) if height else 0
    return Group(*lines, _table(history, choices, width, room), _foot(choices))


def _head(found: Sequence[Finding], name: str, of: str, choices: Choices, width: int) -> RenderableType:
    level = found[0].level if found else Level.HEALTHY
    verdict = found[0].text if found else "healthy"
    right = f"{name}{f' ({of})' if of else ''}  {datetime.now():%H:%M:%S}{'  paused' if choices.is_paused else ''}"
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{verdict} ", style=_STYLES[level])
    space = width - line.cell_len - len(right)
    if space > 0:
        line.append(" " * space + right, style="dim")
        return line
    return Group(Text(verdict, style=_STYLES[level]), Text(right, style="dim", justify="right"))


def _summary(history: History, width: int) -> Iterator[RenderableType]:
    memory = history.slab.memory
    used = f" {in_bytes(memory.used)} of {in_bytes(memory.total)}, at most {in_bytes(memory.peak)}"
    if memory.waiting_threads:
        used += f", {count(memory.waiting_threads, 'thread')} waiting"
    cells = max(8, min(40, width - len(used) - 8))
    filled = round(cells * memory.used / memory.total)
    style = "red" if memory.waiting_threads else "cyan"
    yield Text.assemble("memory ", ("█" * filled, style), ("░" * (cells - filled), "dim"), used, no_wrap=True)
    yield Text.assemble(
        f"in {history.rate(appended):,.0f}/s ",
        (curve([each.appended for each in history.points]), "cyan"),
        f"  out {history.rate(sent):,.0f}/s, {in_bytes(history.rate(lambda slab: slab.metrics['byte-total']))}/s ",
        (curve([each.sent for each in history.points]), "cyan"),
        no_wrap=True,
        overflow="ellipsis",
    )
    delivery = history.recent("delivery_time_us")
    times = (
        f"delivered in {span(delivery.percentile(50) / 1000)}, 99 % in {span(delivery.percentile(99) / 1000)} "
        if delivery.count
        else "nothing delivered lately "
    )
    sender = history.slab.sender
    state = "stopped" if sender.stopped else "asleep" if sender.asleep else "awake"
    yield Text.assemble(
        times,
        (curve([each.delivery_ms for each in history.points]), "cyan"),
        f"  sender {sender.pid}, {state}" if sender.alive else "  no sender",
        no_wrap=True,
        overflow="ellipsis",
    )


def _tabs(history: History, choices: Choices) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, tab in enumerate(TABS):
        line.append(
            f" {number + 1} {tab.title} {len(tab.items(history))} ", style="reverse" if number == choices.tab else "dim"
        )
        line.append(" ")
    return line


def _table(history: History, choices: Choices, width: int, room: int) -> RenderableType:
    rows = TABS[choices.tab].rows(
        history, choices.sorted_by[choices.tab], is_reversed=choices.is_reversed, contains=choices.contains, width=width
    )
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, is_text in zip(rows.headings, rows.are_texts, strict=True):
        made.add_column(heading, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    first = max(0, min(choices.first_row, len(rows.cells) - 1)) if room else 0
    shown = rows.cells[first : first + room - 1] if room else rows.cells
    for row in shown:
        made.add_row(*map(Text, row))
    left = len(rows.cells) - first - len(shown)
    if left > 0:
        made.add_row(Text(f"and {left:,} more", style="dim"))
    return made


def _foot(choices: Choices) -> Text:
    if choices.is_typing or choices.contains:
        return Text(f"rows with: {escaped(choices.contains)}{'_' if choices.is_typing else '   (/ Esc shows all)'}")
    return Text(f"{_KEYS}  ? help", style="dim", no_wrap=True, overflow="ellipsis")


def curve(values: Sequence[float]) -> str:
    """Return the last values as a line of blocks, the largest of them as the highest."""
    shown = values[-_CURVE:]
    top = max(shown, default=0.0)
    return "".join(_BLOCKS[round((len(_BLOCKS) - 1) * value / top)] if top > 0 else _BLOCKS[0] for value in shown)
