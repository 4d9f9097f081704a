"""What can be wrong with the shared memory, with the processes around it, and with what is installed."""

from __future__ import annotations

from shmaccum.errors.base import KafkaError, ShmaccumError
from shmaccum.errors.clients import KafkaTimeoutError


class SlabError(ShmaccumError):
    """Base of what can be wrong with the shared memory itself."""


class SlabNotFoundError(SlabError):
    """There is no slab of that name."""


class SlabPermissionError(SlabError):
    """The slab belongs to another user, or others may open it."""


class SlabAbiError(SlabError):
    """The segment is not a slab, is cut short, or was laid out by another version or for other settings."""


class SlabDamagedError(SlabError):
    """The shared memory says what none of its users would have written; says what, and how to get rid of it."""


class SlabMemoryError(SlabError):
    """/dev/shm cannot hold the slab; says what is needed, what is free and the cure."""


class SlabFullError(SlabError, KafkaError):
    """A table of fixed size (processes, topics, partitions) has no entry left."""

    code = -109


class SlabInUseError(SlabError):
    """The slab, the sender's role or the log directory is in somebody else's hands."""


class SenderExistsError(SlabInUseError):
    """The slab has a living sender already; one is enough."""


class LockTimeoutError(SlabError, KafkaTimeoutError):
    """A lock was not to be had in time; names the process that is in the way."""

    code = -114


class DeadOwnerError(SlabError):
    """What was to be used belongs to a process that is gone, or to the parent of a forked child."""


class SenderError(ShmaccumError):
    """The sender process could not be started, or refused its settings."""


class ApiVersionError(ShmaccumError):
    """A needed feature is missing from an installed library; says which and what to install."""
