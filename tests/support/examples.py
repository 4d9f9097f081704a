"""The examples of the README and docs, as users copy them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def example(heading: str, changes: Mapping[str, str], *, page: str = "README.md", number: int = 0) -> str:
    """Return the Python code number ``number`` below a heading of a page.

    ``changes``: what replaces what, such as the brokers' names; all of it must be there.
    """
    section = (_ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    code: str = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    return code
