"""The settings in the slab: reads, changes, and what a death or damage leaves."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import pytest

from shmaccum._core import SETTINGS_SIZE, WORD, Geometry, Super
from shmaccum.errors import ConfigError
from shmaccum.shm import shared_settings
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.shared_settings import SlabSettings, UserSettings
from shmaccum.shm.slab import Slab

Attach = Callable[[UserSettings], Slab]
MINE = UserSettings({"size": 8, "where": ["a:1", "b:2"]}, {"pace": 5, "name": "one"}, "1.0")


@pytest.fixture
def attached(slab_name: str, geometry: Geometry) -> Iterator[Attach]:
    """Return a function that attaches to the test's slab, until the test's end."""
    slabs: list[Slab] = []

    def attach_with(mine: UserSettings) -> Slab:
        slabs.append(attach(slab_name, geometry, 0, mine))
        return slabs[-1]

    yield attach_with
    for slab in slabs:
        detach(slab)


def read(slab: Slab) -> SlabSettings:
    return shared_settings.read(slab.words, slab.buffer, slab.geometry)


def test_a_slab_without_settings(slab: Slab) -> None:
    assert read(slab) == (0, {}, {}, "")


def test_the_newest_user_sets_the_shared_settings(attached: Attach, caplog: pytest.LogCaptureFixture) -> None:
    slab = attached(MINE)
    assert read(slab) == (1, MINE.fixed, MINE.shared, "1.0")
    attached(MINE)
    assert read(slab).generation == 1, "nothing has changed"
    with caplog.at_level("INFO"):
        attached(UserSettings(MINE.fixed, {"pace": 7, "name": "one", "new": None}, "2.0"))
    assert read(slab) == (2, MINE.fixed, {"pace": 7, "name": "one", "new": None}, "2.0")
    assert f"slab {slab.name}: pace is now 7 for all users, was 5" in caplog.messages
    attached(UserSettings(MINE.fixed, {"pace": 9}, "1.0", decides=False))
    assert read(slab).generation == 2
    attached(UserSettings(MINE.fixed, {"pace": 9}, "1.0"))
    assert read(slab).shared == {"pace": 9, "name": "one", "new": None}, "what the other version has stays"


def test_death_during_a_change_keeps_the_old_settings(attached: Attach) -> None:
    """At any point of the other copy: the generation is the last store."""
    slab = attached(MINE)
    other = slab.geometry.settings + (slab.words[Super.SETTINGS_GENERATION] + 1) % 2 * SETTINGS_SIZE
    slab.buffer[other : other + SETTINGS_SIZE] = b"\xee" * SETTINGS_SIZE
    assert read(slab) == (1, MINE.fixed, MINE.shared, "1.0")


TEXTS = [b"", b"no JSON", b"[]", b"{}", b'{"fixed": 1, "shared": 2, "version": 3}', b'{"fixed": {}}', b"\xff\xfe"]


@pytest.mark.parametrize("damage", [*TEXTS, 0, 1, (1 << 64) - 1, 5 << 32, SETTINGS_SIZE << 32, "another letter"])
def test_damage_counts_as_no_settings(attached: Attach, damage: bytes | int | str) -> None:
    """A text that is none of ours, or a wrong length or checksum. The next user stores its own."""
    slab = attached(MINE)
    at = slab.geometry.settings + slab.words[Super.SETTINGS_GENERATION] % 2 * SETTINGS_SIZE
    if isinstance(damage, bytes):
        slab.buffer[at + WORD : at + WORD + len(damage)] = damage
        damage = len(damage) << 32 | zlib.crc32(damage)
    if isinstance(damage, int):
        slab.words[at // WORD] = damage
    else:
        slab.buffer[at + bytes(slab.buffer[at : at + SETTINGS_SIZE]).index(b"one")] = ord("O")
    assert read(slab) == (1, {}, {}, "")
    attached(MINE)
    assert read(slab) == (2, MINE.fixed, MINE.shared, "1.0")


def test_too_long_settings_are_refused(slab_name: str, geometry: Geometry) -> None:
    long = UserSettings({"where": "x" * SETTINGS_SIZE, "size": 8}, {}, "1.0")
    with pytest.raises(
        ConfigError, match=r"^the settings take 164\d\d bytes, .* for 16376; shorten where, the longest$"
    ):
        attach(slab_name, geometry, 0, long)
