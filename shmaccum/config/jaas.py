"""Translates ``sasl.jaas.config``, credentials as Kafka's Java clients and Spark's options write them, into settings.

The format is that of JAAS's configuration files (``org.apache.kafka.common.security.JaasConfig``):
``<login module> <control flag> (<name>=<value>)*;``, with values in quotes or as single words. The options of
``Krb5LoginModule`` mean what they mean to ``com.sun.security.auth.module.Krb5LoginModule`` and Kafka's
``KerberosLogin``, for a client. No error message here contains any of the text: it is secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum.config.valuetypes import Password
from shmaccum.errors import ConfigError

if TYPE_CHECKING:
    from shmaccum.config.settings import ProducerSettings

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*(?s:.*?)\*/|(?P<plain>[\w.$-]+|[=;])|"""
    r"""(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<wrong>.)"""
)
"""A blank, a comment, a word or a mark, a quoted text, or what is none of these."""
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}
_CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class JaasEntry(NamedTuple):
    """One login module and its options."""

    module: str
    """Its class without the package, which differs where Kafka is shaded."""
    options: Mapping[str, str]


class _Token(NamedTuple):
    text: str
    is_mark: bool


def parse_jaas(text: str) -> JaasEntry:
    """Parse the setting's text. Raises ValueError: with what was expected, and nothing of the text."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != _END or tokens[1].text.lower() not in _CONTROL_FLAGS:
        raise ValueError("expected <login module> required <name>=<value> ... and a semicolon at the end")
    options = tokens[2:-1]
    if _END in options:
        raise ValueError("expected a single login module")
    names, equals, values = options[::3], options[1::3], options[2::3]
    if len(options) % 3 or any(token != _EQUALS for token in equals) or any(token.is_mark for token in names + values):
        raise ValueError('expected options as <name>="<value>", separated by blanks')
    by_name = {name.text: value.text for name, value in zip(names, values, strict=True)}
    return JaasEntry(tokens[0].text.rpartition(".")[2], by_name)


_EQUALS: Final = _Token("=", is_mark=True)
_END: Final = _Token(";", is_mark=True)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        plain, quoted = match["plain"], match["quoted"]
        if match["wrong"]:
            raise ValueError("expected words, quoted values, = and ; only; is a quote missing?")
        if plain:
            yield _Token(plain, is_mark=plain in ("=", ";"))
        elif quoted:
            yield _Token(_unescape(quoted[1:-1]), is_mark=False)


def _unescape(quoted: str) -> str:
    """Resolve escapes as Java's ``StreamTokenizer`` does."""

    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(plain, quoted)


_HIDDEN: Final = "sasl.jaas.config = [hidden]: "
_LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
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


def settings_of(config: ProducerSettings, text: str) -> dict[str, object]:
    """Return the settings that are equivalent to a ``sasl.jaas.config``, with None for itself.

    Raises ConfigError: the text is wrong, or does not fit ``sasl.mechanism`` or the other settings.
    """
    try:
        module, options = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{_HIDDEN}{error}") from None
    expected = _LOGIN_MODULES[config.sasl_mechanism]
    if module != expected:
        known = module if module in _LOGIN_MODULES.values() else "a login module that Kafka does not have"
        raise ConfigError(f"{_HIDDEN}it is for {known}, but sasl.mechanism {config.sasl_mechanism} needs {expected}")
    spelled_out: dict[str, object] = {"sasl.jaas.config": None}
    if module in ("PlainLoginModule", "ScramLoginModule"):
        return spelled_out | _username_and_password(config, module, options)
    if module == "Krb5LoginModule":
        return spelled_out | _kerberos(config, options)
    if options:
        raise ConfigError(
            f"{_HIDDEN}OAuthBearerLoginModule takes no options here; set sasl.oauthbearer.token.provider to a callable "
            "that returns tokens"
        )
    return spelled_out


def _username_and_password(config: ProducerSettings, module: str, options: Mapping[str, str]) -> dict[str, object]:
    if config.sasl_username or config.sasl_password is not None:
        raise ConfigError(f"{_HIDDEN}leave out sasl.username and sasl.password, or leave out this")
    # Spark writes serviceName into the line of every module; Kafka ignores it.
    optional = {"serviceName"} if module == "PlainLoginModule" else {"serviceName", "tokenauth"}
    if set(options) - optional != {"username", "password"}:
        raise ConfigError(
            f"{_HIDDEN}the login module takes username and password, ScramLoginModule also tokenauth, and nothing else"
        )
    if any(value != value.strip() for value in options.values()):
        raise ConfigError(f"{_HIDDEN}username and password must not begin or end with blanks")
    settings = {"sasl.username": options["username"], "sasl.password": Password(options["password"])}
    if "tokenauth" in options:
        settings["sasl.tokenauth"] = options["tokenauth"].lower() == "true"
    return settings


def _kerberos(config: ProducerSettings, options: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that are equivalent to the options of a ``Krb5LoginModule``.

    With ``useKeyTab`` and ``useTicketCache``, Java tries the cache first. Both belong to the same principal, so only
    the keytab is used.

    Raises ConfigError: an option is unknown or unsupported, needs another one, or contradicts a setting.
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
        advice = "set KRB5CCNAME in the environment of the producers, which the sender inherits"
        raise ConfigError(f"{_HIDDEN}ticketCache: leave it out and {advice}")
    if options.get("isInitiator", "true").lower() != "true":
        raise ConfigError(f"{_HIDDEN}isInitiator=false is for a server: leave it out")
    settings: dict[str, object] = {}
    for option, name, value in (
        ("serviceName", "sasl.kerberos.service.name", options.get("serviceName")),
        ("principal", "sasl.kerberos.principal", options.get("principal")),
        ("keyTab", "sasl.kerberos.keytab", _keytab(options)),
    ):
        if value:
            if config[name] and config.settings[name].parse(value) != config[name]:
                raise ConfigError(f"{_HIDDEN}its {option} is not {name} = {config[name]!r}: leave out one of them")
            settings[name] = value
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
    return re.sub("^file:", "", keytab, flags=re.IGNORECASE)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    """Return a value as Java parses it: everything but true, in upper or lower case, is false."""
    return options.get(name, "").lower() == "true"
