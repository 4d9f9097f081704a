"""The text of the generated documents: pages/, in which ``$name`` is what the code makes."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

_PAGES: Final = Path(__file__).with_name("pages")


def page(name: str, **parts: object) -> str:
    """Return a page with its parts filled in."""
    return Template((_PAGES / f"{name}.md").read_text(encoding="utf-8")).substitute(parts)
