"""Shows what brokers say, without the passwords and tokens that they may repeat.

A broker that refuses a login can say so in any words, those that it was sent included. What it says reaches logs, the
slab and the errors of every process. So all of a broker's words go through `Mask.shown`.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import itemgetter
from typing import Final

from shmaccum.shm.incidents import printable

HIDDEN: Final = "[hidden]"
_TELLING: Final = 16
"""Characters in a row of a longer secret that are hidden wherever they stand: a broker can repeat a part of it."""
_KEPT: Final = 8
"""Secrets that are remembered: the password, and the latest tokens."""
_LONGEST_TEXT: Final = 16_384
"""Characters of a text that are looked at. Far fewer are shown."""


class Mask:
    """Remembers secrets, and hides them. A thread that gets a token can call `hide`."""

    def __init__(self, *secrets: str) -> None:
        self._secrets: deque[str] = deque(filter(None, secrets), maxlen=_KEPT)

    def hide(self, secret: str) -> None:
        """Hide this, too, from now on."""
        if secret and secret not in self._secrets:
            self._secrets.append(secret)

    def shown(self, text: str) -> str:
        """Return text of a broker as it can be shown: without secrets, and as `printable` has it."""
        if len(text) > _LONGEST_TEXT:
            text = text[: _LONGEST_TEXT - _TELLING]  # the last characters can be the beginning of a secret
        hidden = bytearray(len(text))
        for secret in tuple(self._secrets):
            _mark(hidden, text, secret)
        runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
        return printable("".join(HIDDEN if is_hidden else "".join(each for each, _ in run) for is_hidden, run in runs))


def _mark(hidden: bytearray, text: str, secret: str) -> None:
    """Mark where a text has a secret, or any telling part of it."""
    size = min(len(secret), _TELLING)
    parts = {secret[begin : begin + size] for begin in range(len(secret) - size + 1)}
    for at in range(len(text) - size + 1):
        if text[at : at + size] in parts:
            hidden[at : at + size] = b"\1" * size
