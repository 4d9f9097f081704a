"""The settings in the slab: those all users agree on, and the shared ones.

There are two copies; the lowest bit of `Super.SETTINGS_GENERATION` selects the valid one. A process that changes them
holds the lifecycle byte, writes the other copy and then raises the generation, in one store. If it dies before that
store, the old copy stays valid. Readers take no lock. A copy with a wrong checksum counts as none: damaged settings are
no reason to lose records.

Secrets are never stored here: every process that can read the slab can read them, and core dumps contain them.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from shmaccum._core import SETTINGS_SIZE, WORD, Geometry, Super
from shmaccum.errors import ConfigError

logger = logging.getLogger(__name__)

_TRIES: Final = 10
"""Most reads of a copy that changes meanwhile: a damaged word must not make the loop endless."""
_MAX_TEXT: Final = SETTINGS_SIZE - WORD
_SIZE_SHIFT: Final = 32
_CRC_MASK: Final = (1 << _SIZE_SHIFT) - 1

Values = Mapping[str, object]


class UserSettings(NamedTuple):
    """The settings of a process that attaches, as JSON values.

    Attributes:
        fixed: those that must be equal for all users of a slab.
        shared: those for which the newest user's values are valid for all.
        version: of the package, for messages.
        decides: whether this user's shared values replace the slab's.
    """

    fixed: Values
    shared: Values
    version: str
    decides: bool = True


class SlabSettings(NamedTuple):
    """A snapshot of the settings in a slab."""

    generation: int
    fixed: Values
    shared: Values
    version: str
    """Package version of the process that wrote them."""


_NONE: Final = SlabSettings(0, {}, {}, "")


def read(words: memoryview, buffer: memoryview, geometry: Geometry) -> SlabSettings:
    """Return the settings of a slab; empty ones if it has none, or they are damaged."""
    text = None
    for _ in range(_TRIES):
        generation: int = words[Super.SETTINGS_GENERATION]
        text = _text(words, buffer, geometry, generation)
        if words[Super.SETTINGS_GENERATION] == generation:  # else the copy can have been overwritten meanwhile
            break
    if text is None:
        return _NONE._replace(generation=generation)
    try:
        found = json.loads(text)
        return SlabSettings(generation, dict(found["fixed"]), dict(found["shared"]), str(found["version"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return _NONE._replace(generation=generation)


def _text(words: memoryview, buffer: memoryview, geometry: Geometry, generation: int) -> bytes | None:
    if not generation:
        return None
    start = geometry.settings + generation % 2 * SETTINGS_SIZE
    head = words[start // WORD]
    size = min(head >> _SIZE_SHIFT, _MAX_TEXT)
    text = bytes(buffer[start + WORD : start + WORD + size])
    return text if zlib.crc32(text) == head & _CRC_MASK else None


def bring(name: str, words: memoryview, buffer: memoryview, geometry: Geometry, mine: UserSettings) -> None:
    """Store a user's settings in the slab where they apply; the caller holds the lifecycle byte.

    A sleeping sender is not woken: it sees the new generation when it next has work, and needs it only then. The user's
    fixed settings equal the slab's.

    Raises ConfigError: the settings take more bytes than the slab has for them.
    """
    there = read(words, buffer, geometry)
    if not there.fixed:
        _write(words, buffer, geometry, mine.fixed, mine.shared, mine.version)
        return
    if not mine.decides:
        return
    changes = [(each, there.shared.get(each), value) for each, value in mine.shared.items()]
    changes = [(each, before, value) for each, before, value in changes if before != value]
    if not changes:
        return
    # Keep shared settings that only another version of this package has.
    _write(words, buffer, geometry, there.fixed, {**there.shared, **mine.shared}, mine.version)
    for each, before, value in changes:
        logger.info("slab %s: %s is now %s for all users, was %s", name, each, shown(value), shown(before))


def _write(
    words: memoryview, buffer: memoryview, geometry: Geometry, fixed: Values, shared: Values, version: str
) -> None:
    text = json.dumps({"version": version, "fixed": dict(fixed), "shared": dict(shared)}).encode()
    if len(text) > _MAX_TEXT:
        largest = max({**fixed, **shared}.items(), key=lambda item: len(str(item[1])))[0]
        raise ConfigError(
            f"the settings take {len(text)} bytes, but a slab has room for {_MAX_TEXT}; shorten {largest}, the longest"
        )
    generation = words[Super.SETTINGS_GENERATION] + 1
    start = geometry.settings + generation % 2 * SETTINGS_SIZE
    buffer[start + WORD : start + WORD + len(text)] = text
    words[start // WORD] = len(text) << _SIZE_SHIFT | zlib.crc32(text)
    words[Super.SETTINGS_GENERATION] = generation


def differences(there: SlabSettings, mine: UserSettings) -> list[str]:
    """Return the fixed settings that differ between a user and the slab, with both values."""
    return [
        f"{name} is {shown(there.fixed[name])} there and {shown(value)} here"
        for name, value in sorted(mine.fixed.items())
        if name in there.fixed and there.fixed[name] != value
    ]


def shown(value: object) -> str:
    """Return a value as a user writes it."""
    if isinstance(value, list | tuple):
        return repr(",".join(map(str, value)))
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
