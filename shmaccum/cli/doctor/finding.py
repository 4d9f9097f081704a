"""What a check has found."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not well, or not for ever."""
    PROBLEM = "problem"
    """Something does not work."""


class Finding(NamedTuple):
    """What a check has found."""

    level: Level
    subject: str
    """What was checked, in a word or two."""
    text: str
    """What was found."""
    advice: str = ""
    """What to do about it; empty if there is nothing to do."""
