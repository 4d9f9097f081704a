"""The settings in the slab: what its users agree on, and what the newest of them has set for all.

There are two copies, and `Super.SETTINGS_GENERATION` says by its lowest bit which one counts. A process that changes
them holds the lifecycle byte, writes the other copy and then raises the generation, which is one store: if it dies in
between, the old copy counts. Readers take no lock. A copy that does not fit its checksum counts as none: settings are
no reason to give records up.

Nothing secret is ever in here: everything that can read the slab can read it, and so can a core dump.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from shmaccum.errors import ConfigError
from shmaccum.shm.layout import SETTINGS_SIZE, WORD, Geometry, Super

logger = logging.getLogger(__name__)

_TRIES: Final = 10
"""How often a copy is read that is written anew meanwhile: by a damaged word, that could go on for ever."""
_MAX_TEXT: Final = SETTINGS_SIZE - WORD
_SIZE_SHIFT: Final = 32
_CRC_MASK: Final = (1 << _SIZE_SHIFT) - 1

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The settings that a process comes to a slab with, as JSON can hold them.

    Attributes:
        fixed: those in which all users of a slab are alike.
        shared: those of which the newest user's values hold.
        version: of the package, for messages.
        decides: whether this user's shared values replace those that are there.
    """

    fixed: Values
    shared: Values
    version: str
    decides: bool = True


class SlabSettings(NamedTuple):
    """The settings in a slab, as they were at one moment."""

    generation: int
    fixed: Values
    shared: Values
    version: str
    """Of the package of the process that wrote them."""


_NONE: Final = SlabSettings(0, {}, {}, "")


def read(words: memoryview, buffer: memoryview, geometry: Geometry) -> SlabSettings:
    """Return the settings of a slab; empty ones where there are none that can be read."""
    text = None
    for _ in range(_TRIES):
        generation: int = words[Super.SETTINGS_GENERATION]
        text = _text(words, buffer, geometry, generation)
        if words[Super.SETTINGS_GENERATION] == generation:  # else the copy may have been written anew meanwhile
            break
    if text is None:
        return _NONE._replace(generation=generation)
    try:
        found = json.loads(text)
        return SlabSettings(generation, dict(found["fixed"]), dict(found["shared"]), str(found["version"]))
    except (ValueError, TypeError, KeyError):
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
    """Have a user's settings in the slab, as far as they are to hold; the caller holds the lifecycle byte.

    A sender sees the new generation when it next has something to do: before that there is nothing to do by them.

    Args:
        name: the slab's.
        words: all of its memory, as words.
        buffer: the same as bytes.
        geometry: its layout.
        mine: of the user, whose fixed ones are those of the slab.

    Raises:
        ConfigError: there is no room for so much text.
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
    # What another version of this package has beside ours stays.
    _write(words, buffer, geometry, there.fixed, {**there.shared, **mine.shared}, mine.version)
    for each, before, value in changes:
        logger.info("slab %s: %s is %s now for all its users, and was %s", name, each, shown(value), shown(before))


def _write(
    words: memoryview, buffer: memoryview, geometry: Geometry, fixed: Values, shared: Values, version: str
) -> None:
    text = json.dumps({"version": version, "fixed": dict(fixed), "shared": dict(shared)}).encode()
    if len(text) > _MAX_TEXT:
        largest = max({**fixed, **shared}.items(), key=lambda item: len(str(item[1])))[0]
        raise ConfigError(
            f"the settings take {len(text)} bytes, and a slab has room for {_MAX_TEXT}; shorten {largest}, the longest"
        )
    generation = words[Super.SETTINGS_GENERATION] + 1
    start = geometry.settings + generation % 2 * SETTINGS_SIZE
    buffer[start + WORD : start + WORD + len(text)] = text
    words[start // WORD] = len(text) << _SIZE_SHIFT | zlib.crc32(text)
    words[Super.SETTINGS_GENERATION] = generation


def differences(there: SlabSettings, mine: UserSettings) -> list[str]:
    """Return the settings in which a user is not like the slab, each with both values."""
    return [
        f"{name} is {shown(there.fixed[name])} there and {shown(value)} here"
        for name, value in sorted(mine.fixed.items())
        if name in there.fixed and there.fixed[name] != value
    ]


def shown(value: object) -> str:
    """Return a value as a user would write it."""
    if isinstance(value, list | tuple):
        return repr(",".join(map(str, value)))
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
