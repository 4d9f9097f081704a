"""The types of settings, and which values of a type are allowed: Kafka's ``ConfigDef.Type`` and ``Validator``.

A type parses a value of its kind, or text, because Spark can only pass text on. Text is trimmed first. A parsed
value parses to itself, so that one process can parse what another resolved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

INT_MAX: Final = 2**31 - 1
"""Java's ``Integer.MAX_VALUE``: the largest value of an `INT`."""
LONG_MAX: Final = 2**63 - 1
"""Java's ``Long.MAX_VALUE``: the largest value of a `LONG`; as a default it means "never"."""

# Java's parsers reject the underscores and the non-ASCII digits that Python's int() accepts.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
# Kafka's own pattern (Utils.HOST_PORT_PATTERN) also takes a protocol before it, which has no meaning to a client.
_ADDRESS = re.compile(
    r"(\[(?P<ipv6>[0-9a-fA-F:.]+)(?P<zone>%[0-9a-zA-Z._-]+)?\]|(?P<name>[0-9a-zA-Z._-]+)):(?P<port>[0-9]{1,5})"
)


class ValueType(Generic[T]):
    """One type of setting, by Kafka's name for it.

    ``parse`` turns a value into a ``T``, or raises a ValueError that says what was expected.
    """

    def __init__(self, name: str, parse: Callable[[object], T]) -> None:
        self.name: Final = name
        self.parse: Final = parse


class Password:
    """Secret text: it prints as ``[hidden]`` (``org.apache.kafka.common.config.types.Password``)."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash((Password, self.value))

    def __repr__(self) -> str:
        return "[hidden]"


def _whole_number(bits: int) -> Callable[[object], int]:
    limit = 1 << (bits - 1)

    def parse(value: object) -> int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
            value = int(value)
        # Python's True is an int; Java's is not an Integer.
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise ValueError(f"expected a whole number of at most {bits} bits")
        return value

    return parse


def _parse_boolean(value: object) -> bool:
    for truth in (True, False):
        if value is truth or _is_word(value, str(truth).lower()):
            return truth
    raise ValueError("expected true or false")


def _parse_string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text (str), not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:  # its text shows a part of the value, which can be secret
        raise ValueError("expected text that UTF-8 can encode, not a surrogate such as an undecoded byte") from None
    return value.strip()


def _parse_password(value: object) -> Password:
    return value if isinstance(value, Password) else Password(_parse_string(value))


def _parse_path(value: object) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise ValueError(f"expected a path as text (str) or a PathLike for it, not {type(value).__name__}")
    path = path.strip()
    try:
        return os.path.abspath(path) if path else ""
    except FileNotFoundError:
        raise ValueError("expected an absolute path, since the working directory does not exist any more") from None


def _parse_callable(value: object) -> Callable[..., Any]:
    value = _resolved(value, "a callable")
    if not callable(value):
        raise ValueError(f"expected a callable or its dotted name, not {type(value).__name__}")
    return value


def _parse_serializer(value: object) -> Any:
    value = _resolved(value, "a serializer")
    if not callable(value) and not callable(getattr(value, "serialize", None)):
        raise ValueError(
            "expected a callable, an object with a method serialize(topic, data), or the dotted name of either, not "
            f"{type(value).__name__}"
        )
    return value


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, in lower case, without brackets. Raises ValueError: it is no address."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError(f"expected host:port, with a port from 1 to 65535, not {address!r}")
    # A zone is the name of a network interface, or its number.
    return (match["ipv6"] or match["name"]).lower() + (match["zone"] or ""), int(match["port"])


def _parse_addresses(value: object) -> tuple[str, ...]:
    hosts = [split_address(address) for address in LIST.parse(value)]
    return tuple(sorted({f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts}))


def _resolved(value: object, what: str) -> object:
    """Import a dotted name; return anything but text unchanged."""
    if not isinstance(value, str):
        return value
    try:
        from pkgutil import resolve_name

        return resolve_name(value.strip())
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"expected the dotted name of {what}: {error}") from error


def _parse_string_or_number(value: object) -> str:
    return str(int(value)) if isinstance(value, int) and not isinstance(value, bool) else _parse_string(value)


INT: Final = ValueType("int", _whole_number(32))
LONG: Final = ValueType("long", _whole_number(64))
BOOLEAN: Final = ValueType("boolean", _parse_boolean)
STRING: Final = ValueType("string", _parse_string)
STRING_OR_NUMBER: Final = ValueType("string", _parse_string_or_number)
"""Text that can be a number; it can be given as one."""
PASSWORD: Final = ValueType("password", _parse_password)
PATH: Final = ValueType("string", _parse_path)
"""A file's name: also a ``PathLike``; made absolute, so that it means the same in every process."""
CLASS: Final = ValueType("class", _parse_callable)
"""A callable (a class, for example), or its dotted name, which is imported."""
SERIALIZER: Final = ValueType("class", _parse_serializer)
"""A callable, an object with a method ``serialize``, a class of such objects, or a dotted name."""


def path_or(word: str) -> ValueType[str]:
    """Return the type of a `PATH` or one keyword, in any case."""
    return ValueType("string", lambda value: word if _is_word(value, word) else _parse_path(value))


def _is_word(value: object, word: str) -> bool:
    return isinstance(value, str) and value.strip().lower() == word


def word(spelling: Callable[[str], str]) -> ValueType[str]:
    """Return the type of text in any case, normalised with ``spelling`` (``str.upper``)."""
    return ValueType("string", lambda value: spelling(_parse_string(value)))


def list_of(element: ValueType[T]) -> ValueType[tuple[T, ...]]:
    """Return the type of a list or tuple of ``element``, or of comma-separated text (Kafka's LIST)."""

    def parse(value: object) -> tuple[T, ...]:
        if isinstance(value, str):
            value = value.split(",") if value.strip() else ()
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list, or comma-separated text")
        return tuple(element.parse(part) for part in value)

    return ValueType("list", parse)


def optional(inner: ValueType[T]) -> ValueType[T | None]:
    """Return a type that also accepts None."""
    return ValueType(inner.name, lambda value: None if value is None else inner.parse(value))


AUTO: Final = -1
"""Stands for ``auto``: a number derived from other settings."""
INT_OR_AUTO: Final = ValueType("int", lambda value: AUTO if _is_word(value, "auto") else INT.parse(value))
LIST: Final = list_of(STRING)
ADDRESSES: Final = ValueType("list", _parse_addresses)
"""``host:port`` texts for `split_address`: sorted and without duplicates, so that equal sets are equal values."""


class Validator(Generic[T_contra]):
    """A test of a value, and its description: it completes "must be ..."; the documentation shows it too."""

    def __init__(self, allows: Callable[[T_contra], bool], allowed: str) -> None:
        self.allows: Final = allows
        self.allowed: Final = allowed


def at_least(low: int) -> Validator[int]:
    """Allow ``low`` and more (``ConfigDef.Range.atLeast``)."""
    return Validator(lambda value: value >= low, f"at least {low}")


def between(low: int, high: int) -> Validator[int]:
    """Allow ``low`` to ``high``, both included (``ConfigDef.Range.between``)."""
    return Validator(lambda value: low <= value <= high, f"between {low} and {high}")


def auto_or(valid: Validator[int]) -> Validator[int]:
    """Allow ``auto``, and what else is valid."""
    return Validator(lambda value: value == AUTO or valid.allows(value), f"auto, or {valid.allowed}")


def one_of(*choices: str) -> Validator[str]:
    """Allow these texts only (``ConfigDef.ValidString``)."""
    shown = [choice or "empty" for choice in choices]
    return Validator(lambda value: value in choices, f"one of {', '.join(shown)}" if len(shown) > 1 else shown[0])


def matching(pattern: str, allowed: str) -> Validator[str]:
    """Allow text that the regular expression matches as a whole; ``allowed`` describes it in words."""
    return Validator(lambda value: re.fullmatch(pattern, value) is not None, allowed)


# No set: callables can be unhashable.
DISTINCT: Final[Validator[Sequence[object]]] = Validator(
    lambda values: all(value not in values[:index] for index, value in enumerate(values)), "a list without duplicates"
)
"""Allow lists without repeated elements (``ConfigDef.ValidList.anyNonDuplicateValues``)."""
