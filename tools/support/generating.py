"""Files that are generated: written, or compared with what they should be."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.support.arguments import command_line


def write_or_check(
    tool: str, about: str, files: Mapping[Path, Callable[[], str]], arguments: Sequence[str] | None
) -> int:
    """Write each file's text; with ``--check``, show how the files differ from it. Return the tool's exit status."""
    parser = command_line(tool, about)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    is_check, stale = parser.parse_args(arguments).check, False
    for file, make_text in files.items():
        wanted = make_text()
        if is_check:
            current = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
            difference = difflib.unified_diff(current, wanted.splitlines(keepends=True), str(file), "generated")
            for line in difference:
                sys.stdout.write(line)
                stale = True
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted, encoding="utf-8")
    return int(stale)
