"""Which values a setting allows beyond its type: Kafka's ``ConfigDef.Validator``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class Validator(Generic[T_contra]):
    """A test of a value, and its description.

    Args, and attributes:
        allows: returns whether a value is allowed.
        allowed: completes "must be ..."; the documentation shows it too.
        reason: why, if a user of Kafka would not expect it.
    """

    __slots__ = ("allowed", "allows", "reason")

    def __init__(self, allows: Callable[[T_contra], bool], allowed: str, reason: str = "") -> None:
        self.allows: Final = allows
        self.allowed: Final = allowed
        self.reason: Final = reason


def at_least(low: int, reason: str = "") -> Validator[int]:
    """Allow ``low`` and more (``ConfigDef.Range.atLeast``)."""
    return Validator(lambda value: value >= low, f"at least {low}", reason)


def between(low: int, high: int) -> Validator[int]:
    """Allow ``low`` to ``high``, both included (``ConfigDef.Range.between``)."""
    return Validator(lambda value: low <= value <= high, f"between {low} and {high}")


def between_or(low: int, high: int, other: int) -> Validator[int]:
    """Allow ``low`` to ``high``, both included, and one more value."""
    return Validator(lambda value: low <= value <= high or value == other, f"between {low} and {high}, or {other}")


def one_of(*choices: str, reason: str = "") -> Validator[str]:
    """Allow these texts only (``ConfigDef.ValidString``)."""
    shown = [choice or "empty" for choice in choices]
    allowed = f"one of {', '.join(shown)}" if len(shown) > 1 else shown[0]
    return Validator(lambda value: value in choices, allowed, reason)


def matching(pattern: str, allowed: str) -> Validator[str]:
    """Allow text that the regular expression matches as a whole; ``allowed`` describes it in words."""
    expression = re.compile(pattern)
    return Validator(lambda value: expression.fullmatch(value) is not None, allowed)


def _has_no_duplicates(values: Sequence[object]) -> bool:
    # No set: callables can be unhashable.
    return not any(value in values[:index] for index, value in enumerate(values))


DISTINCT: Final = Validator(_has_no_duplicates, "a list without duplicates")
"""Allow lists without repeated elements (``ConfigDef.ValidList.anyNonDuplicateValues``)."""
