"""Numbers, times and names in the sentences of verdicts, commands and errors."""

from __future__ import annotations

import pwd
import time

from shmaccum.errors import escaped
from shmaccum.shm.incidents import IncidentInfo
from shmaccum.shm.inspection import PartitionInfo
from shmaccum.shm.layout import Role


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 slot``, ``2,048 slots``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def in_bytes(size: float) -> str:
    """Return a number of bytes in the largest unit that gives at least 1."""
    units = ("B", "KiB", "MiB", "GiB")
    power = min(max(int(size).bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size / 1024**power:,.{1 if power else 0}f} {units[power]}"


def span(milliseconds: float) -> str:
    """Return a time for a sentence: ``900 ms``, ``12 s``, ``3 min``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    for size, unit in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min")):
        if milliseconds >= 2 * size:
            return f"{milliseconds / size:.0f} {unit}"
    return f"{milliseconds / 1000:.0f} s"


def ago_ms(wall_ms: int) -> float:
    """Return how many milliseconds ago a time was."""
    return max(0.0, time.time() * 1000 - wall_ms)


def since(wall_ms: int) -> str:
    """Return how long ago a time was."""
    return span(ago_ms(wall_ms))


def role_names(roles: Role) -> list[str]:
    """Return the roles of a process, in lower case."""
    return [role.name.lower() for role in Role if role in roles and role.name]


def said(incident: IncidentInfo) -> str:
    """Return an incident's class, and the message of the network or the broker."""
    return f"{incident.error.__name__}: {incident.text or incident.error.meaning()}"


def partition_name(partition: PartitionInfo) -> str:
    """Return a partition's name, and the transactional id if the entry is a lane's."""
    name = f"{partition.topic}-{partition.partition}"
    return name if partition.transactional_id is None else f"{name} of {escaped(partition.transactional_id)}"


def user_name(uid: int) -> str | None:
    """Return a user's name; None if this host has none for the id."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None
