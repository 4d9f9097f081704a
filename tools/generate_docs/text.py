"""The text of the generated documents: tables, and pages/, in which ``$name`` is what the code makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Final

_PAGES: Final = Path(__file__).with_name("pages")


def page(name: str, **parts: object) -> str:
    """Return a page with its parts filled in."""
    return Template((_PAGES / f"{name}.md").read_text(encoding="utf-8")).substitute(parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = ()) -> str:
    """Return a table in Markdown, in which the columns of ``numbers`` are aligned to the right."""
    lines = [head, ["---:" if each in numbers else "---" for each in head], *rows]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in lines)


def _cell(content: object) -> str:
    return str(content).replace("|", r"\|")
