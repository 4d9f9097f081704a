"""The producer's configuration, and the identity of the slab that follows from it.

Two configurations whose settings of scope slab are equal, once resolved, name the same slab and have the
same digest, in every process and for every order and spelling in which the settings were given. A setting that has
its default does not enter either, so that a version that brings new settings still finds the slab of the one before.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Final, Self

from shmaccum import __version__
from shmaccum.abi import ABI_VERSION
from shmaccum.config.configdef import Importance, Scope, SettingDescription
from shmaccum.config.foreign_settings import ELSEWHERE
from shmaccum.config.rules import RULES
from shmaccum.config.security_rules import SECURITY_RULES
from shmaccum.config.settings import Group, ProducerSettings
from shmaccum.config.valuetypes import PASSWORD, Password
from shmaccum.errors import ConfigError

logger = logging.getLogger(__name__)

_SCRYPT_COST: Final = 1 << 14
"""With blocks of 1 KiB: 16 MiB and some 40 ms for every guess."""


class ProducerConfig(ProducerSettings):
    """All settings of a producer, valid by themselves and together. Made by `parse` or `from_json`."""

    __slots__ = ()
    rules = RULES + SECURITY_RULES
    elsewhere = ELSEWHERE

    def slab_name(self, uid: int) -> str:
        """Return the name of the slab for a user: ``shmaccum.name``, or one that no other settings of scope slab have.

        Nor has another layout of the slab: programs of versions that lay it out otherwise have a slab each.

        Args:
            uid: user id of the slab's owner.
        """
        return self.shmaccum_name or f"auto-{self._slab_hash([uid, ABI_VERSION]).hex()[:16]}"

    def slab_digest(self, uid: int) -> int:
        """Return 64 bits, unsigned, that tell whether two configurations can share a slab.

        The upper half covers the settings of scope slab but for its name and passwords. The lower one covers the
        passwords, salted with the name, by a function that takes long enough to make guessing dear, since the
        digest stays in the slab; it is 0 where there is none.

        Args:
            uid: user id of the slab's owner.
        """
        settings = int.from_bytes(self._slab_hash()[:4], "big")
        secrets = {name: value.value for name, value in self._values.items() if isinstance(value, Password)}
        if not secrets:
            return settings << 32
        text = json.dumps(secrets, sort_keys=True).encode()
        key = hashlib.scrypt(text, salt=self.slab_name(uid).encode(), n=_SCRYPT_COST, r=8, p=1, dklen=4)
        return settings << 32 | int.from_bytes(key, "big")

    def fixed_settings(self) -> dict[str, object]:
        """Return what all users of the slab must agree on, without its name and passwords, as JSON can hold it."""
        fixed = self._settings_of(Scope.SLAB)
        del fixed["shmaccum.name"]
        return {name: value for name, value in fixed.items() if self.settings[name].type.name != PASSWORD.name}

    def shared_settings(self) -> dict[str, object]:
        """Return the settings of which the newest user's values hold, as JSON can hold them."""
        return self._settings_of(Scope.SHARED)

    def with_shared(self, values: Mapping[str, object]) -> Self:
        """Return this configuration with the values that hold in its slab.

        One that this version does not know, or takes for wrong, changes nothing: another version has set it.
        """
        config = type(self)(dict(self._values), self._explicit)
        for name, value in values.items():
            setting = self.settings.get(name)
            if setting is not None and setting.scope is Scope.SHARED:
                try:
                    config._values[name] = setting.parse(value)
                except ConfigError as error:
                    logger.warning("the slab's setting %s; this sender keeps %r", error, self[name])
        return config

    def to_json(self, uid: int) -> str:
        """Return what the sender needs to know: all but what a producer does itself, passwords readable.

        The slab's name is written out: another version of this package may derive another one.

        Args:
            uid: user id of the slab's owner.
        """
        given = {name: value for name, value in self._settings_of(*Scope).items() if name not in _OWN}
        changed = [name for name in self.fixed_settings() if self[name] != self.settings[name].default]
        return json.dumps({"settings": given | {"shmaccum.name": self.slab_name(uid)}, "fixed": changed})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the configuration that `to_json` wrote, in this version of the package or another one.

        All settings but those of one producer are explicit in it. A setting that this version does not have is left
        out, unless all users of the slab must agree on it, and it is not as by default.

        Raises:
            ConfigError: the text is not whole, or comes from a version with a setting that cannot be left out.
        """
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration handed over is not whole: {error}") from error
        if not isinstance(given, dict) or not isinstance(given.get("settings"), dict):
            raise ConfigError(f"the configuration handed over is no set of settings but {type(given).__name__}")
        known = {name: value for name, value in given["settings"].items() if name in cls.settings}
        missing = [name for name in given.get("fixed", ()) if name not in known]
        if missing:
            raise ConfigError(
                f"version {__version__} of shmaccum has no setting {', '.join(missing)}, which the program that "
                "started this sender has; restart that program, so that it runs this version"
            )
        return cls.parse(known)

    def _settings_of(self, *scopes: Scope) -> dict[str, object]:
        """Return the settings of these scopes as JSON can hold them."""
        chosen = {name: self[name] for name, setting in self.settings.items() if setting.scope in scopes}
        return {name: _plain(value) for name, value in chosen.items()}

    def _slab_hash(self, beside: object = None) -> bytes:
        fixed = {
            name: value for name, value in self.fixed_settings().items() if value != _plain(self.settings[name].default)
        }
        return hashlib.sha256(json.dumps([fixed, beside], sort_keys=True).encode()).digest()


_OWN: Final = frozenset(name for name, setting in ProducerConfig.settings.items() if setting.group == Group.PRODUCER)
"""What a producer does before a record is in a batch: callables among it, and nothing that a sender needs."""


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, Password):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def describe_settings() -> list[SettingDescription]:
    """Return all settings as documentation shows them: by group, then importance, then name."""
    groups, levels = list(Group), list(Importance)
    return sorted(
        (setting.describe() for setting in ProducerConfig.settings.values()),
        key=lambda shown: (groups.index(Group(shown.group)), levels.index(shown.importance), shown.name),
    )
