"""Errors of the shared memory, its processes, and the installed libraries."""

from __future__ import annotations

from shmaccum.errors.base import KafkaError, ShmaccumError
from shmaccum.errors.clients import KafkaTimeoutError


class SlabError(ShmaccumError):
    """Base of the errors of the shared memory."""


class SlabNotFoundError(SlabError):
    """No slab has that name."""


class SlabPermissionError(SlabError):
    """The slab belongs to another user, or other users can open it."""


class SlabAbiError(SlabError):
    """The segment is no slab, is truncated, or was laid out by another version or for other settings."""


class SlabDamagedError(SlabError):
    """A word of the slab has a value that no live code could have written; names it, and the cure."""


class SlabMemoryError(SlabError):
    """/dev/shm cannot hold the slab; names what is needed, what is free and the cure."""


class SlabFullError(SlabError, KafkaError):
    """A table of fixed size (processes, topics, partitions) has no entry left."""

    code = -109


class SlabInUseError(SlabError):
    """Another process uses the slab, the sender's role or the log directory."""


class SenderExistsError(SlabInUseError):
    """The slab already has a living sender; it can have only one."""


class LockTimeoutError(SlabError, KafkaTimeoutError):
    """A lock could not be acquired in time; names the process that holds it."""

    code = -114


class DeadOwnerError(SlabError):
    """The object belongs to a process that has left, or to the parent of a forked child."""


class SenderError(ShmaccumError):
    """The sender process did not start, or refused its settings."""


class ApiVersionError(ShmaccumError):
    """An installed library lacks a needed feature; names it, and what to install."""
