"""The producer's configuration, and the slab's name and digest derived from it.

Two configurations with equal settings of scope slab, once resolved, name the same slab and have the same digest. That
holds in every process, for every order and spelling of the settings. A setting that has its default does not count, so
a version that brings new settings still finds the slab of the version before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final, Self

from shmaccum.abi import ABI_VERSION, VERSION, shard_name, shard_of
from shmaccum.config.configdef import Group, Scope
from shmaccum.config.foreign_settings import ELSEWHERE
from shmaccum.config.rules import RULES
from shmaccum.config.settings import ProducerSettings
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError
from shmaccum.later import blake2b

logger = logging.getLogger(__name__)

_SCRYPT_COST: Final = 1 << 14
"""With blocks of 1 KiB: 16 MiB and some 40 ms for each guess."""


class ProducerConfig(ProducerSettings):
    """All settings of a producer, each valid alone and all together. Made by `parse` or `from_json`.

    Methods that take a ``uid`` mean the user id of the slab's owner.
    """

    __slots__ = ()
    rules = RULES
    elsewhere = ELSEWHERE

    def slab_name(self, uid: int) -> str:
        """Return the slab's name for a user: ``shmaccum.name``, or a hash of the settings of scope slab.

        The hash covers the layout's version too: programs whose versions lay out the slab differently use different
        slabs.
        """
        return self.shmaccum_name or f"auto-{self._slab_hash([uid, ABI_VERSION]).hex()[:16]}"

    def slab_names(self, uid: int) -> list[str]:
        """Return the names of the slabs that a process with these settings can join, one for each shard."""
        name = self.slab_name(uid)
        return [name] if self.shmaccum_shards == 1 or shard_of(name)[1] is not None else self.shard_names(uid)

    def shard_names(self, uid: int) -> list[str]:
        """Return the names of all shards, also if ``shmaccum.name`` chooses one; the only slab's without shards."""
        base, _ = shard_of(self.slab_name(uid))
        return [shard_name(base, each) for each in range(self.shmaccum_shards)] if self.shmaccum_shards > 1 else [base]

    def in_slab(self, name: str) -> Self:
        """Return this configuration for one slab of `shard_names`."""
        return type(self)({**self._values, "shmaccum.name": name}, self._explicit)

    def slab_digest(self, uid: int) -> int:
        """Return 64 bits, unsigned, by which two configurations that can share a slab are equal.

        The upper half covers the settings of scope slab except its name and passwords. The lower half covers the
        passwords, or is 0 if there are none. It is salted with the name and slow to compute, because the digest stays
        readable in the slab and guesses must be expensive.
        """
        settings = int.from_bytes(self._slab_hash()[:4], "big")
        secrets = {name: value.value for name, value in self._values.items() if isinstance(value, Password)}
        if not secrets:
            return settings << 32
        from hashlib import scrypt  # loads OpenSSL

        text = json.dumps(secrets, sort_keys=True).encode()
        key = scrypt(text, salt=self.slab_name(uid).encode(), n=_SCRYPT_COST, r=8, p=1, dklen=4)
        return settings << 32 | int.from_bytes(key, "big")

    def fixed_settings(self) -> dict[str, object]:
        """Return the settings all users of the slab must agree on, without name and passwords, as JSON can hold it."""
        fixed = self._settings_of(Scope.SLAB)
        del fixed["shmaccum.name"]
        return {name: value for name, value in fixed.items() if not self.settings[name].is_secret}

    def shared_settings(self) -> dict[str, object]:
        """Return the settings for which the newest user's values hold, as JSON can hold them."""
        return self._settings_of(Scope.SHARED)

    def with_shared(self, values: Mapping[str, object]) -> Self:
        """Return this configuration with the values that hold in its slab.

        A value that is unknown to this version, or invalid in it, changes nothing: another version has set it.
        """
        config = type(self)(dict(self._values), self._explicit)
        for name, value in values.items():
            setting = self.settings.get(name)
            if setting is not None and setting.scope is Scope.SHARED:
                try:
                    config._values[name] = setting.parse(value)
                except ConfigError as error:
                    logger.warning("Ignored a setting in the slab: %s; this sender keeps %r.", error, self[name])
        return config

    def to_json(self, uid: int) -> str:
        """Return the sender's settings: all but those of group Producer, passwords readable.

        The slab's name is included: another version of this package can derive another one.
        """
        given = {name: value for name, value in self._settings_of(*Scope).items() if name not in _OWN}
        changed = [name for name in self.fixed_settings() if self[name] != self.settings[name].default]
        return json.dumps({"settings": given | {"shmaccum.name": self.slab_name(uid)}, "fixed": changed})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the configuration that `to_json` wrote, in this version of the package or another one.

        All settings but those of group Producer are explicit in it. A setting that this version does not have is
        dropped, unless all users of the slab must agree on it and its value is not the default.

        Raises ConfigError: the text is incomplete, or contains a required setting that this version does not have.
        """
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration passed to the sender is incomplete: {error}") from error
        if not isinstance(given, dict) or not isinstance(given.get("settings"), dict):
            raise ConfigError(f"the configuration passed to the sender must be settings, not {type(given).__name__}")
        known = {name: value for name, value in given["settings"].items() if name in cls.settings}
        missing = [name for name in given.get("fixed", ()) if name not in known]
        if missing:
            raise ConfigError(
                f"version {VERSION} of shmaccum has no setting {', '.join(missing)}, which the program that "
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
        return blake2b(json.dumps([fixed, beside], sort_keys=True).encode()).digest()


_OWN: Final = frozenset(name for name, setting in ProducerConfig.settings.items() if setting.group == Group.PRODUCER)
"""Settings for what a producer does before a record is in a batch: some are callables, and the sender needs none."""


def _plain(value: object) -> object:
    """Return a value as JSON can hold it."""
    if isinstance(value, Password):
        return value.value
    return list(value) if isinstance(value, tuple) else value
