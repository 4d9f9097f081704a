"""A setting and a validated set of settings: Kafka's ``ConfigDef`` and ``AbstractConfig``.

A setting is defined once, in its `Setting`, an attribute of a subclass of `Config`: the attribute ``linger_ms`` is the
setting ``linger.ms``. On the class the attribute is the definition; on an instance, the value. An instance is
immutable, and every value in it has passed its type, its validator and the rules.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from shmaccum.config.valuetypes import AUTO, INT_OR_AUTO, PASSWORD, Validator, ValueType
from shmaccum.errors import ConfigError

T = TypeVar("T")


class Group(StrEnum):
    """The parts of the documentation, in its order."""

    ACCUMULATOR = "Accumulator"
    DELIVERY = "Delivery"
    CONNECTION = "Connection to brokers"
    SECURITY = "Security"
    LOG_TRANSPORT = "Log transport"
    PRODUCER = "Producer"
    SLAB = "Slab and sender"


class Importance(StrEnum):
    """How much a setting matters to most users (``ConfigDef.Importance``), most important first."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(StrEnum):
    """Which processes a setting affects."""

    SLAB = "slab"
    """It fixes the layout or a guarantee: all users of a slab must have the same value."""
    SHARED = "shared"
    """It sets how the one sender works for all: the newest user's value holds, and changes while the slab lives."""
    PRODUCER = "producer"
    """It affects one producer and can differ between producers that share a slab."""
    SENDER = "sender"
    """It affects one sender process: the value of the process that started it holds, until the next sender."""


class Setting(Generic[T]):
    """One setting: the definition on the class, the value on an instance.

    Attributes:
        name: Kafka's dotted name, derived from the attribute's.
        type: the value's type.
        default: the value if the user gives none.
        valid: which values are allowed, or None if the whole type is.
        importance, scope, group: its place in the documentation; the class gives the group.
        doc: what it does, in Markdown, on one line.
    """

    name: str
    scope: Scope
    group: str
    doc = ""

    def __init__(
        self,
        type: ValueType[T],
        default: T,
        importance: Importance,
        scope: Scope | None = None,
        valid: Validator[T] | None = None,
    ) -> None:
        self.type = type
        self.default = default
        self.valid = valid
        self.importance = importance
        if scope is not None:
            self.scope = scope

    def says(self, doc: str) -> Self:
        """Set the documentation."""
        self.doc = " ".join(doc.split())
        return self

    @property
    def is_secret(self) -> bool:
        """Whether it is a password; by name, since an optional password is one too."""
        return self.type.name == PASSWORD.name

    @property
    def is_derived(self) -> bool:
        """Whether the rules derive the default from other settings."""
        return self.type is INT_OR_AUTO and self.default == AUTO

    def __set_name__(self, owner: type[object], attribute: str) -> None:
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, config: None, owner: type[Config]) -> Self: ...

    @overload
    def __get__(self, config: Config, owner: type[Config]) -> T: ...

    def __get__(self, config: Config | None, owner: type[Config]) -> Self | T:
        return self if config is None else cast("T", config[self.name])

    def parse(self, value: object) -> T:
        """Parse a value that a user gave. Raises ConfigError: with the name, the value and what is allowed."""
        shown = "[hidden]" if self.is_secret else repr(value)
        try:
            parsed = self.type.parse(value)
        except ValueError as error:
            raise ConfigError(f"{self.name} = {shown}: {error}") from error
        if self.valid is not None and not self.valid.allows(parsed):
            raise ConfigError(f"{self.name} = {shown}: must be {self.valid.allowed}")
        return parsed

    def default_text(self) -> str:
        """Return the default as documentation shows it: a string as it would be given, all else as JSON."""
        if self.is_derived:
            return "auto"
        return self.default or '""' if isinstance(self.default, str) else json.dumps(self.default, default=repr)


class Config:
    """A validated set of settings; subclasses define them. Made by `parse`."""

    __slots__ = ("_explicit", "_values")

    settings: ClassVar[Mapping[str, Setting[Any]]] = {}
    """Every setting of the class, by name, in the order of definition."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Settings that users know from other programs and that do not exist here -> what to do instead."""
    rules: ClassVar[tuple[Callable[[Any], Mapping[str, object] | None], ...]] = ()
    """Run in order after all values are parsed (``AbstractConfig.postProcessParsedConfig``): each returns the settings
    that it changes, if any, or raises a ConfigError if they contradict each other."""

    def __init_subclass__(cls, *, group: str = "", scope: Scope | None = None) -> None:
        """Complete the settings that the class defines.

        Args:
            group: of all of them, in the documentation.
            scope: of those without one.
        """
        own = {setting.name: setting for setting in vars(cls).values() if isinstance(setting, Setting)}
        for setting in own.values():
            setting.group = group
            if scope is not None:
                setting.scope = getattr(setting, "scope", scope)
        inherited = ChainMap(*(dict(base.settings) for base in reversed(cls.__bases__) if issubclass(base, Config)))
        cls.settings = {**inherited, **own}

    def __init__(self, values: dict[str, object], explicit: frozenset[str]) -> None:
        self._values = values
        self._explicit = explicit

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Parse and validate dotted names with values, of the setting's own type or its text form; fill in defaults.

        Raises ConfigError: lists every unknown name and wrong value; if there are none, every contradiction; or
        ``given`` is no mapping.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"settings must be a dict, not {type(given).__name__}: {{'bootstrap.servers': 'broker1:9092'}}"
            )
        values = {name: setting.default for name, setting in cls.settings.items()}
        problems: list[str] = []
        for name, value in given.items():
            try:
                values[name] = cls._setting(name).parse(value)
            except ConfigError as error:
                problems.append(str(error))
        _refuse(problems)
        config = cls(values, frozenset(given))
        for rule in cls.rules:
            try:
                values.update(rule(config) or {})
            except ConfigError as error:
                problems.append(str(error))
        _refuse(problems)
        return config

    @classmethod
    def _setting(cls, name: str) -> Setting[Any]:
        if name in cls.settings:
            return cls.settings[name]
        if name in cls.elsewhere:
            raise ConfigError(f"{name}: no such setting; {cls.elsewhere[name]}")
        import difflib  # only needed after a mistake

        nearest = difflib.get_close_matches(str(name).lower(), cls.settings, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "docs/configuration.md lists all settings"
        raise ConfigError(f"{name}: no such setting; {advice}")

    @property
    def explicit(self) -> frozenset[str]:
        """Names of the settings that the user gave."""
        return self._explicit

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def as_dict(self) -> dict[str, object]:
        """Return all settings by their dotted names; a password stays a `Password`."""
        return dict(self._values)

    def __repr__(self) -> str:
        defaults = {
            name: self._values[name] if setting.is_derived and name not in self._explicit else setting.default
            for name, setting in self.settings.items()
        }
        changed = {name: value for name, value in self._values.items() if value != defaults[name]}
        return f"{type(self).__name__}({changed})"


def _refuse(problems: Sequence[str]) -> None:
    """Raise the problems, if there are any, as one ConfigError."""
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError("\n- ".join([f"{len(problems)} problems in the configuration:", *problems]))
