"""Translates the options of Java's ``Krb5LoginModule`` in ``sasl.jaas.config`` into settings.

The rules are those of ``com.sun.security.auth.module.Krb5LoginModule`` and of Kafka's ``KerberosLogin``, for a client.
No error contains a value: the surrounding text is secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from shmaccum.errors import ConfigError

if TYPE_CHECKING:
    from shmaccum.config.settings import ProducerSettings

_HIDDEN: Final = "sasl.jaas.config = [hidden]: "
_CACHE: Final = "set KRB5CCNAME in the environment of the producers, which the sender inherits"
_NEVER_ASKED: Final = "leave it out: there is no password prompt here"
_UNSUPPORTED: Final = {
    "renewTGT": "leave it out: the sender does not renew the ticket cache; keep it fresh (kinit -R), or use a keytab",
    "useFirstPass": _NEVER_ASKED,
    "tryFirstPass": _NEVER_ASKED,
    "storePass": _NEVER_ASKED,
    "clearPass": _NEVER_ASKED,
}
"""Options that only matter if they are true, and are then unsupported -> what to do instead."""
_WITHOUT_EFFECT: Final = ("storeKey", "doNotPrompt", "refreshKrb5Config", "debug")
"""Options without effect on a client here, true or false."""
_OPTIONS: Final = {
    *("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "isInitiator", "serviceName"),
    *_UNSUPPORTED,
    *_WITHOUT_EFFECT,
}
_KEYTAB_PREFIX: Final = "FILE:"


def kerberos_settings(config: ProducerSettings, options: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that are equivalent to the options of a ``Krb5LoginModule``.

    With ``useKeyTab`` and ``useTicketCache``, Java tries the cache first. Both belong to the same principal, so only
    the keytab is used.

    Args:
        config: the other settings.
        options: of the login module.

    Raises:
        ConfigError: an option is unknown or unsupported, needs another one, or contradicts a setting.
    """
    if unknown := len(set(options) - _OPTIONS):
        raise ConfigError(
            f"{_HIDDEN}{unknown} of its options {'is' if unknown == 1 else 'are'} unknown; Krb5LoginModule has "
            f"{', '.join(sorted(_OPTIONS))}, and their case matters"
        )
    for name, advice in _UNSUPPORTED.items():
        if _is_true(options, name):
            raise ConfigError(f"{_HIDDEN}{name}=true: {advice}")
    if "ticketCache" in options:
        raise ConfigError(f"{_HIDDEN}ticketCache: leave it out and {_CACHE}")
    if not _is_true(options, "isInitiator", default="true"):
        raise ConfigError(f"{_HIDDEN}isInitiator=false is for a server: leave it out")
    settings: dict[str, object] = {}
    _put(settings, config, "sasl.kerberos.service.name", "serviceName", options.get("serviceName", ""))
    _put(settings, config, "sasl.kerberos.principal", "principal", options.get("principal", ""))
    _put(settings, config, "sasl.kerberos.keytab", "keyTab", _keytab(options))
    return settings


def _keytab(options: Mapping[str, str]) -> str:
    keytab = options.get("keyTab", "")
    if not _is_true(options, "useKeyTab"):
        if keytab:
            raise ConfigError(f"{_HIDDEN}keyTab needs useKeyTab=true")
        return ""
    missing = [name for name in ("keyTab", "principal") if not options.get(name)]
    if missing:
        raise ConfigError(f"{_HIDDEN}useKeyTab=true needs {' and '.join(missing)}: Java's defaults are not used")
    return keytab[len(_KEYTAB_PREFIX) :] if keytab.upper().startswith(_KEYTAB_PREFIX) else keytab


def _is_true(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return a value as Java parses it: everything but true, in upper or lower case, is false."""
    return options.get(name, default).lower() == "true"


def _put(settings: dict[str, object], config: ProducerSettings, setting: str, option: str, value: str) -> None:
    """Set what an option gives, if it gives anything.

    Raises:
        ConfigError: the setting has another value.
    """
    if not value:
        return
    if config[setting] and config.settings[setting].parse(value) != config[setting]:
        raise ConfigError(f"{_HIDDEN}its {option} is not {setting} = {config[setting]!r}: leave out one of them")
    settings[setting] = value
