"""Draws screens of ``shmaccum top`` as SVG, as a terminal of 100 by 24 shows them."""

from __future__ import annotations

import io
import re
import threading
from contextlib import suppress
from typing import Final

from rich.console import Console

from shmaccum.cli.top.history import History
from shmaccum.cli.top.screen import Choices, draw
from shmaccum.cli.top.tables import TABS
from shmaccum.errors import SlabError
from shmaccum.observe.report import report

WIDTH: Final = 100
HEIGHT: Final = 24
_INTERVAL_S: Final = 1.0
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Left out: a browser that shows the picture would fetch the font from another host."""


class TopWatch:
    """Looks at a slab every second, as ``shmaccum top`` does; use as a context manager.

    Args:
        slab: its name.
        shown: the name in pictures.
    """

    def __init__(self, slab: str, shown: str) -> None:
        self._slab, self._shown = slab, shown
        self._history = History()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> TopWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_INTERVAL_S):
            with suppress(SlabError):  # it is being made
                self._history.add(report(self._slab))

    def screen(self, tab: str) -> str:
        """Return the screen now as SVG, with a table by its title in lower case."""
        console = Console(
            record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
        )
        choices = Choices(tab=[each.title.lower() for each in TABS].index(tab))
        console.print(draw(self._history, None, choices, WIDTH, HEIGHT))
        svg = console.export_svg(title=f"shmaccum top {self._shown}", unique_id=tab)
        return _FONT.sub("", svg).replace(self._slab, self._shown)
