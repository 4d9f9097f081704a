"""The producer's configuration, and the identity of the slab that follows from it.

Two configurations whose settings of scope slab are equal, once resolved, name the same slab and have the
same digest, in every process and for every order and spelling in which the settings were given.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final, Self

from shmaccum import __version__
from shmaccum.config.configdef import Importance, Scope, SettingDescription
from shmaccum.config.elsewhere import ELSEWHERE
from shmaccum.config.rules import RULES
from shmaccum.config.security_rules import SECURITY_RULES
from shmaccum.config.settings import Group, ProducerSettings
from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

_SCRYPT_COST: Final = 1 << 14
"""With blocks of 1 KiB: 16 MiB and some 40 ms for every guess."""


class ProducerConfig(ProducerSettings):
    """All settings of a producer, valid by themselves and together. Made by `parse` or `from_json`."""

    __slots__ = ()
    rules = RULES + SECURITY_RULES
    elsewhere = ELSEWHERE

    def slab_name(self, uid: int) -> str:
        """Return the name of the slab for a user: ``shmaccum.name``, or one that no other settings have.

        Nor has another version of this package: while the programs of a host are upgraded one by one, the old ones
        and the new ones have a slab each.

        Args:
            uid: user id of the slab's owner.
        """
        return self.shmaccum_name or f"auto-{self._slab_hash([uid, __version__]).hex()[:16]}"

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

    def to_json(self) -> str:
        """Return what the sender needs to know: the settings of scope slab and sender, passwords readable."""
        return json.dumps(self._settings_of(Scope.SLAB, Scope.SENDER))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the configuration that `to_json` wrote.

        All settings of scope slab and sender are explicit in it; the others have their defaults.

        Raises:
            ConfigError: the text is not whole, or comes from a version with other settings.
        """
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the configuration handed over is not whole: {error}") from error
        if not isinstance(given, dict):
            raise ConfigError(f"the configuration handed over is no set of settings but {type(given).__name__}")
        return cls.parse(given)

    def _settings_of(self, *scopes: Scope) -> dict[str, object]:
        """Return the settings of these scopes as JSON can hold them."""
        chosen = {name: self[name] for name, setting in self.settings.items() if setting.scope in scopes}
        return {name: value.value if isinstance(value, Password) else value for name, value in chosen.items()}

    def _slab_hash(self, beside: object = None) -> bytes:
        slab = self._settings_of(Scope.SLAB)
        del slab["shmaccum.name"]
        for name in slab:
            if isinstance(self[name], Password):
                slab[name] = None
        return hashlib.sha256(json.dumps([slab, beside], sort_keys=True).encode()).digest()


def describe_settings() -> list[SettingDescription]:
    """Return all settings as documentation shows them: by group, then importance, then name."""
    groups, levels = list(Group), list(Importance)
    return sorted(
        (setting.describe() for setting in ProducerConfig.settings.values()),
        key=lambda shown: (groups.index(Group(shown.group)), levels.index(shown.importance), shown.name),
    )
