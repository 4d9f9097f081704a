"""Reads files of settings: JSON, or Java properties as Kafka's own tools read them.

The content decides: JSON begins with ``{``, and no line of Kafka's settings does.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from shmaccum.config.producerconfig import ProducerConfig
from shmaccum.errors import ConfigError

logger = logging.getLogger(__name__)

# Several codes at once: a character beyond U+FFFF is written as two.
_ESCAPE: Final = r"(?s)\\(?:u(?P<codes>[0-9A-Fa-f]{4}(?:\\u[0-9A-Fa-f]{4})*)|(?P<char>.))"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# The key ends at the first separator without a backslash before it; one = or : and the blanks around it are dropped.
_PROPERTY: Final = r"(?s)(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)"
_BLANKS: Final = " \t\f"


def read_settings(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read a file of settings. Log a warning if it holds passwords and is readable by every user of the host.

    Raises ConfigError: it cannot be read, or as `parse_settings`.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a file of settings: it is not UTF-8 text") from error
    given = parse_settings(text, str(path))
    secrets = [name for name, value in given.items() if value and is_secret(name)]
    if secrets and mode & stat.S_IROTH:
        logger.warning(
            "%s holds %s and every user of the host can read it (mode %04o): chmod o-r it, and change those secrets.",
            path,
            ", ".join(secrets),
            mode,
        )
    return given


def is_secret(name: str) -> bool:
    """Return whether a name is that of a setting for a password."""
    return name in ProducerConfig.settings and ProducerConfig.settings[name].is_secret


def parse_settings(text: str, name: str) -> dict[str, object]:
    """Return the settings in a text, called ``name`` in errors.

    Raises ConfigError: it begins as JSON and is not valid JSON, or as `parse_properties`.
    """
    if not text.lstrip().startswith("{"):
        return dict(parse_properties(text, name))
    try:
        return dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} begins as JSON but is not valid JSON: {error}") from error


def parse_properties(text: str, name: str = "the text") -> dict[str, str]:
    """Return the keys and values of Java properties (``java.util.Properties.load``); the last value of a key wins.

    Raises ConfigError: a Unicode escape is incomplete.
    """
    found = {}
    for line in _logical_lines(text):
        match = re.fullmatch(_PROPERTY, line)
        assert match is not None  # a key and a value may both be empty
        try:
            found[_unescape(match["key"])] = _unescape(match["value"])
        except ValueError as error:
            raise ConfigError(f"{name}: {match['key']}: {error}") from None
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without blanks and comments; join a line that ends with a lone backslash to the next."""
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += line[:-1] if continued else line
        if not continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    """Resolve escapes. Raises ValueError: one is incomplete; shows nothing of the text."""

    def plain(match: re.Match[str]) -> str:
        if codes := match["codes"]:
            return bytes.fromhex(codes.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
        if match["char"] == "u":
            raise ValueError(r"a \u needs four hexadecimal digits behind it; write \\ for a backslash")
        return _ESCAPED.get(match["char"], match["char"])

    return re.sub(_ESCAPE, plain, text)
