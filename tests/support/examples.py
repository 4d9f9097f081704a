"""The README's examples, as users copy them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_README = Path(__file__).resolve().parents[2] / "README.md"


def example(heading: str, changes: Mapping[str, str]) -> str:
    """Return the Python code below a heading of the README.

    Args:
        heading: its text.
        changes: what to put in the place of what, such as of the brokers' names; all of it must be there.
    """
    section = _README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    code = found[1]
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    return code
