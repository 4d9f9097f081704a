"""Hides passwords and tokens in the texts of brokers, and in errors of settings.

A broker that refuses a login can repeat in its message what it was sent. Such messages reach logs, the slab and the
errors of every process. So every text of a broker goes through `Mask.shown`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from shmaccum.errors import ConfigError, printable

HIDDEN: Final = "[hidden]"
_TELLING: Final = 16
"""Any so long run of a secret's characters is hidden: a broker can repeat a part of it."""
_KEPT: Final = 8
"""Most secrets to remember: the password, and the latest tokens."""
_LONGEST_TEXT: Final = 16_384
"""Most characters of a text that are searched. Far fewer are shown."""


class Mask:
    """Remembers secrets, and hides them in texts. Any thread can call `hide`."""

    def __init__(self, *secrets: str) -> None:
        self._secrets: deque[str] = deque(filter(None, secrets), maxlen=_KEPT)

    def hide(self, secret: str) -> None:
        """Hide this secret, too, from now on."""
        if secret and secret not in self._secrets:
            self._secrets.append(secret)

    def shown(self, text: str) -> str:
        """Return a broker's text without secrets, and `printable`."""
        searched = text[:_LONGEST_TEXT]
        hidden = bytearray(len(searched))
        for secret in tuple(self._secrets):
            _mark(hidden, searched, secret)
        if len(text) > _LONGEST_TEXT:
            searched = searched[:-_TELLING]  # the cut can leave the beginning of a secret, which is not marked
        runs = groupby(zip(searched, hidden, strict=False), key=itemgetter(1))
        return printable("".join(HIDDEN if is_hidden else "".join(each for each, _ in run) for is_hidden, run in runs))


def _mark(hidden: bytearray, text: str, secret: str) -> None:
    """Mark where a text has a secret, or `_TELLING` characters of it in a row."""
    size = min(len(secret), _TELLING)
    parts = {secret[begin : begin + size] for begin in range(len(secret) - size + 1)}
    for at in range(len(text) - size + 1):
        if text[at : at + size] in parts:
            hidden[at : at + size] = b"\1" * size


@contextlib.contextmanager
def naming(setting: str, path: str = "") -> Iterator[None]:
    """Turn errors into a ConfigError that names the setting, and no secret."""
    given = f"{setting} = {path!r}" if path else f"{setting} = {HIDDEN}"
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{given}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{given}: {error}") from None
