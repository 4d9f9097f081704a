"""The interpreter that a producer starts its sender in: as its own, but for what a working directory holds.

Anybody may have put a ``json.py`` into the directory that a program happens to run in. The program does not import it,
and the sender, which gets passwords, must not either. So a sender runs in ``/``, and searches absolute paths only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).absolute().parents[2])
"""Where this package was found: the sender has the same one, wherever else there is another."""

EXECUTABLE: Final = str(Path(sys.executable).absolute()) if sys.executable else ""
"""This interpreter. Python leaves ``sys.executable`` relative if it was found by a relative entry of ``PATH``."""


def command(program: str) -> list[str]:
    """Return the command line that runs a program in an interpreter with this one's options.

    Args:
        program: Python source; everybody on the host can read it.
    """
    # What multiprocessing uses to start its processes: -I, -E, -s, -O, -B, -W, -X and so on.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [EXECUTABLE, *options, "-P", "-c", program]


def environment() -> dict[str, str]:
    """Return this process's environment, with the absolute entries of ``PYTHONPATH`` only."""
    variables = dict(os.environ)
    entries = variables.pop("PYTHONPATH", "").split(os.pathsep)
    if absolute := [entry for entry in entries if os.path.isabs(entry)]:
        variables["PYTHONPATH"] = os.pathsep.join(absolute)
    return variables


def search_path() -> tuple[list[str], list[str]]:
    """Return the entries of ``sys.path`` that are absolute, and those that are not."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    return [entry for entry in entries if os.path.isabs(entry)], [
        entry for entry in entries if not os.path.isabs(entry)
    ]
