"""Watches one slab while producers use it, and shows the progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from shmaccum._core import Super
from shmaccum.errors import SlabError
from shmaccum.observe.kafka_metrics import slab_metrics
from shmaccum.shm import names
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import look

_LOOK_EVERY_S: Final = 0.1
_LINES: Final = 4
"""Lines of progress when the output is not a terminal."""


class SlabWatch:
    """Observations of one slab, which does not have to exist yet or any longer.

    ``metrics`` are the slab's at the last look, ``producers`` the pids of the processes that have appended records.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.created_ms = 0
        self.metrics: dict[str, float] = {}
        self.producers: set[int] = set()

    def look(self) -> None:
        """Read the slab once, if it exists."""
        try:
            with look(self.name) as view:
                self.created_ms = view.words[Super.CREATED_MS]
                self.metrics = slab_metrics(view.words, view.geometry)
                self.producers |= {
                    process.pid for process in view.processes() if Role.PRODUCER in process.roles and process.records
                }
        except SlabError:
            pass

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until nothing is left of the slab; return False after the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.name in names.slab_names():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    @contextmanager
    def following(self, total: int) -> Iterator[None]:
        """Show how many of ``total`` records are acknowledged: as a bar, or in a few lines without a terminal."""
        ended = threading.Event()
        thread = threading.Thread(target=self._show_progress, args=(ended, total), name="slab watch")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _show_progress(self, ended: threading.Event, total: int) -> None:
        out = Console()
        if out.is_terminal:
            with Progress(
                TextColumn("sending"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} records"),
                TimeElapsedColumn(),
                console=out,
            ) as progress:
                bar = progress.add_task("", total=total)
                for acknowledged in self._looks(ended):
                    progress.update(bar, completed=acknowledged)
        else:
            lines = 0
            for acknowledged in self._looks(ended):
                if acknowledged * _LINES >= total * (lines + 1):
                    lines = acknowledged * _LINES // total
                    print(f"sending: {acknowledged:,} of {total:,} records are acknowledged", flush=True)

    def _looks(self, ended: threading.Event) -> Iterator[int]:
        """Look periodically, and at the end; yield the records acknowledged so far."""
        last = False
        while not last:
            last = ended.wait(_LOOK_EVERY_S)
            self.look()
            yield int(self.metrics.get("record-send-total", 0))
