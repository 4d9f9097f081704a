"""``shmaccum top``: watches slabs live; its first line says in words what is wrong."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.live import Live

from shmaccum.cli.settings_arguments import seconds
from shmaccum.cli.top.history import History
from shmaccum.cli.top.screen import Choices, draw
from shmaccum.cli.top.tables import TABS
from shmaccum.errors import ConfigError
from shmaccum.observe.report import SlabReport, UnreadableSlab, all_reports, as_json, no_such_slab
from shmaccum.observe.verdict import findings, verdict

_EPILOG: Final = """\
The first line says in words what is wrong, since when, and what waits for it. Rates and percentiles are those of the
last five seconds. Looking takes no lock and does not keep a slab alive.

keys:
  1-5 tab, s sort, r reverse, / filter, p pause, n next slab, q quit, ? help

examples:
  shmaccum top
  shmaccum top orders --once
  shmaccum top --json --interval 5 | jq -c '.slabs[] | [.name, .verdict]'
"""
Modes = list[Any]
"""Of a terminal, as `termios` has them."""

_SAMPLE_S: Final = 1.0
"""How long ``--once`` watches, since a rate needs two looks."""
_WIDE: Final = 120
"""Columns where the output is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", nargs="?", help="begin with this slab; it need not exist yet")
    parser.add_argument("--interval", metavar="SECONDS", type=seconds, default=1.0, help="between two looks [1]")
    parser.add_argument("--tab", choices=[tab.title.lower() for tab in TABS], help="begin with this one")
    parser.add_argument("--once", action="store_true", help="one screen, of all rows, and end")
    parser.add_argument("--json", action="store_true", help="one JSON object a line: `status --json`, with verdicts")


def run(args: argparse.Namespace) -> int:
    """Watch slabs."""
    choices = Choices()
    if args.tab is not None:
        choices.tab = [tab.title.lower() for tab in TABS].index(args.tab)
    if args.json:
        return _print_json(args)
    if args.once:
        return _print_once(args.name, choices)
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise ConfigError("this is no terminal: use --once for one screen, or --json for programs")
    console = _console()
    if console.is_dumb_terminal:
        kind = os.environ.get("TERM", "")
        raise ConfigError(f"TERM = {kind!r}: nothing can be drawn there; use --once, or set TERM to its kind")
    # Else the terminal would keep the view's screen and modes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _keyboard() as (keyboard, shells):
        _Watch(args.name, args.interval, choices, keyboard, shells, console).run()
    return 0


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _named(name: str | None) -> list[SlabReport | UnreadableSlab]:
    """Return all slabs, or those of a name. Raises SlabNotFoundError: there is none of that name."""
    slabs = list(all_reports(name))
    if name is not None and not slabs:
        raise no_such_slab(name)
    return slabs


def _print_json(args: argparse.Namespace) -> int:
    while True:
        slabs = _named(args.name) if args.once else list(all_reports(args.name))
        output = as_json(slabs)
        for shown, slab in zip(output["slabs"], slabs, strict=True):
            if isinstance(slab, SlabReport):
                shown["verdict"] = verdict(slab)
                shown["findings"] = [{"level": each.level.name.lower(), "text": each.text} for each in findings(slab)]
        print(json.dumps(output), flush=True)
        if args.once:
            return 0
        time.sleep(args.interval)


def _print_once(name: str | None, choices: Choices) -> int:
    out = _console()
    out.width = out.width if out.is_terminal else _WIDE
    watched = _Histories()
    for pause_s in (0.0, _SAMPLE_S):
        time.sleep(pause_s)
        shown = watched.add(_named(name))
    for each in shown or (None,):
        out.print(draw(each, choices, out.width, 0))
    return 0


class _Histories:
    """What is shown of the slabs that are watched."""

    def __init__(self) -> None:
        self._by_name: dict[str, History] = {}

    def add(self, slabs: Sequence[SlabReport | UnreadableSlab]) -> list[History | UnreadableSlab]:
        """Add a look at all slabs, and forget those that are gone; return their histories, or why none can be read."""
        for gone in self._by_name.keys() - {slab.name for slab in slabs}:
            del self._by_name[gone]
        shown: list[History | UnreadableSlab] = []
        for slab in slabs:
            if isinstance(slab, SlabReport):
                history = self._by_name.setdefault(slab.name, History())
                history.add(slab)
                shown.append(history)
            else:
                shown.append(slab)
        return shown


class _Watch:
    """The live view of a slab, or of all, on the terminal of ``keyboard`` and ``console``.

    ``shells`` are the terminal's modes before the view began.
    """

    def __init__(
        self, name: str | None, interval_s: float, choices: Choices, keyboard: int, shells: Modes, console: Console
    ) -> None:
        self._name = name
        self._interval_s = interval_s
        self._choices = choices
        self._keyboard = keyboard
        self._shells = shells
        self._console = console
        self._histories = _Histories()
        self._slabs: Sequence[History | UnreadableSlab] = []
        self._names: list[str] = []
        self._chosen = 0
        self._is_over = False

    def run(self) -> None:
        """Draw until the user quits."""
        with Live(console=self._console, screen=True, auto_refresh=False, transient=True) as live:
            self._stop_with(live)
            next_look = 0.0
            while not self._is_over:
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + self._interval_s
                    if not self._choices.is_paused:
                        self._look()
                live.update(self._drawn(), refresh=True)
                for key in self._keys(max(0.0, next_look - time.monotonic())):
                    self._obey(key)

    def _stop_with(self, live: Live) -> None:
        """Give the terminal back to the shell while Ctrl-Z stops this process."""

        def stop(number: int, _: FrameType | None) -> None:
            drawing = termios.tcgetattr(self._keyboard)
            live.stop()
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._shells)
            os.kill(os.getpid(), signal.SIGSTOP)
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, drawing)
            live.start()

        signal.signal(signal.SIGTSTP, stop)

    def _look(self) -> None:
        slabs = list(all_reports(self._name))
        chosen = self._names[self._chosen] if self._names else None
        self._slabs, self._names = self._histories.add(slabs), [slab.name for slab in slabs]
        # Slabs before it can have come or gone.
        last = max(0, len(slabs) - 1)
        self._chosen = self._names.index(chosen) if chosen in self._names else min(self._chosen, last)

    def _drawn(self) -> RenderableType:
        size, slabs = self._console.size, len(self._slabs)
        of = f"{self._chosen + 1} of {slabs}" if slabs > 1 else ""
        return draw(self._shown(), self._choices, size.width, size.height, of)

    def _shown(self) -> History | UnreadableSlab | None:
        return self._slabs[self._chosen] if self._slabs else None

    def _keys(self, timeout_s: float) -> Iterator[str]:
        """Yield the keys that are pressed within a time, once one is."""
        if select.select([self._keyboard], [], [], timeout_s)[0]:
            typed = os.read(self._keyboard, 1024)
            self._is_over = not typed  # the terminal is gone, and SIGHUP ignored
            yield from keys(typed.decode(errors="ignore"))

    def _obey(self, key: str) -> None:
        choices = self._choices
        if choices.is_typing:
            self._type(key)
            return
        shown = self._shown()
        columns = len(TABS[choices.tab].columns(shown)) if isinstance(shown, History) else 1
        match key:
            case "q" | "\x03":
                self._is_over = True
            case "1" | "2" | "3" | "4" | "5":
                choices.tab, choices.first_row = int(key) - 1, 0
            case "\t":
                choices.tab, choices.first_row = (choices.tab + 1) % len(TABS), 0
            case "s":
                choices.sorted_by[choices.tab] = (choices.sorted_by[choices.tab] + 2) % (columns + 1) - 1
            case "S":
                choices.sorted_by[choices.tab] = choices.sorted_by[choices.tab] % (columns + 1) - 1
            case "r":
                choices.is_reversed = not choices.is_reversed
            case "/":
                choices.is_typing, choices.contains, choices.first_row = True, "", 0
            case "\x1b":
                choices.contains, choices.shows_help = "", False
            case "p" | " ":
                choices.is_paused = not choices.is_paused
            case "n" | "N":
                step = 1 if key == "n" else -1
                self._chosen = (self._chosen + step) % max(1, len(self._slabs))
            case "?":
                choices.shows_help = not choices.shows_help
            case "up" | "down" | "page up" | "page down":
                step = {"up": -1, "down": 1, "page up": -10, "page down": 10}[key]
                choices.first_row = max(0, choices.first_row + step)

    def _type(self, key: str) -> None:
        choices = self._choices
        if key in ("\r", "\n"):
            choices.is_typing = False
        elif key == "\x1b":
            choices.is_typing, choices.contains = False, ""
        elif key in ("\x7f", "\b"):
            choices.contains = choices.contains[:-1]
        elif key.isprintable() and len(key) == 1:
            choices.contains += key


_CURSOR_KEYS: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
_KEY: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[ -~]|.", re.DOTALL)
"""A sequence of a function key (ECMA-48: CSI and SS3), or a character."""


def keys(typed: str) -> Iterator[str]:
    """Yield the keys in what a terminal sent: single characters, or names of the cursor keys; drop all others."""
    for key in _KEY.findall(typed):
        if len(key) == 1:
            yield key
        elif key in _CURSOR_KEYS:
            yield _CURSOR_KEYS[key]


@contextlib.contextmanager
def _keyboard() -> Iterator[tuple[int, Modes]]:
    """Let the terminal send each key at once, and not show it; return its descriptor, and its modes before."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor, before
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
