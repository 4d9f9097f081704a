"""Parses ``sasl.jaas.config``: credentials as Kafka's Java clients and Spark's options write them.

The format is that of JAAS's configuration files (``org.apache.kafka.common.security.JaasConfig``):
``<login module> <control flag> (<name>=<value>)*;``, with values in quotes or as single words. No error message
here contains any of the text: it is secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_SKIPPED: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(r"""(?P<plain>[\w.$-]+|[=;])|(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""")
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
    """Parse the setting's text.

    Raises:
        ValueError: with what was expected, and nothing of the text.
    """
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
    position = _skip(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("expected words, quoted values, = and ; only; is a quote missing?")
        plain, quoted = match["plain"], match["quoted"]
        yield _Token(_unescape(quoted[1:-1]) if plain is None else plain, is_mark=plain in ("=", ";"))
        position = _skip(text, match.end())


def _skip(text: str, position: int) -> int:
    """Return where the next token begins, after blanks and comments."""
    match = _SKIPPED.match(text, position)
    assert match is not None  # it may be empty
    return match.end()


def _unescape(quoted: str) -> str:
    """Resolve escapes as Java's ``StreamTokenizer`` does."""

    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(plain, quoted)
