"""The segment: one `multiprocessing.shared_memory` block, checked at every attach.

Its memory is reserved at creation. An attach first checks owner, mode, size, magic, ABI version and sizes: a foreign
or truncated segment, or one of another version, gets an error, never a crash. A creator stores the superblock's words
in order, READY last, under the lifecycle byte; its death leaves a segment without READY, which counts as none.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from types import SimpleNamespace
from typing import Final, cast

from shmaccum import _core, procfs
from shmaccum._core import PAGE, TOKEN_WORDS, WORD, Geometry, Super
from shmaccum._platform import keeps_order
from shmaccum.abi import ABI_VERSION
from shmaccum.errors import SlabAbiError, SlabMemoryError
from shmaccum.shm import names
from shmaccum.shm.files import Descriptor, in_the_way, open_own
from shmaccum.shm.layout import MAGIC

_SUPERBLOCK = struct.Struct(f"={Super.length}Q")
_SIZES: Final = {
    "slot_size": Super.SLOT_SIZE,
    "slot_count": Super.SLOT_COUNT,
    "max_processes": Super.MAX_PROCESSES,
    "max_topics": Super.MAX_TOPICS,
    "max_partitions": Super.MAX_PARTITIONS,
    "max_lanes": Super.MAX_LANES,
    "keeps_checksums": Super.KEEPS_CHECKSUMS,
}
"""The attributes of `Geometry` that fix a layout -> their words."""


_NO_TRACKER: Final = SimpleNamespace(register=lambda name, kind: None, unregister=lambda name, kind: None)
"""Replaces the resource tracker while a block is made.

Before Python 3.13, each process that opens a block registers it with a helper process, which unlinks it as soon as
*any* of them exits (bpo-38119). A slab must be unlinked only by the last process to leave it.
"""


def _make_block(name: str, size: int) -> None:
    """Make a block of shared memory, without any resource tracker."""
    # Only here: a process that attaches starts an eighth faster without it.
    from multiprocessing import shared_memory

    if sys.version_info >= (3, 13):
        shared_memory.SharedMemory(name, create=True, size=size, track=False).close()
        return
    tracker = shared_memory.resource_tracker  # type: ignore[attr-defined]
    shared_memory.resource_tracker = _NO_TRACKER  # type: ignore[attr-defined]
    try:
        shared_memory.SharedMemory(name, create=True, size=size).close()
    finally:
        shared_memory.resource_tracker = tracker  # type: ignore[attr-defined]


def memory_needed(geometry: Geometry) -> int:
    """Return the bytes of /dev/shm that a slab takes with all of its files."""
    return geometry.total_size + (1 + geometry.max_processes) * PAGE  # each semaphore takes a page


def exceeded_limit(geometry: Geometry) -> int | None:
    """Return the memory limit of this process's cgroup, in bytes, if a slab exceeds it."""
    limit = procfs.memory_limit()
    return limit if limit is not None and limit < geometry.total_size else None


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


class Segment:
    """A mapped slab segment: its layout, the mapping (``core``), and all of it as bytes and as unsigned 8-byte words.

    `SharedMemory` makes the block, but does not map it. It would unlink a block that it cannot map, for lack of address
    space, even one that others use. The mapping does not need the descriptor any longer.
    """

    def __init__(self, descriptor: int, geometry: Geometry) -> None:
        self.geometry: Final = geometry
        self.core: _core.Segment | None = _core.Segment(descriptor, geometry)
        self.buffer: Final = self.core.writable()
        words = self.buffer.cast("Q")
        # With barriers, where the machine needs them; it has of a memoryview what the package uses.
        self.words: Final = words if keeps_order() else cast(memoryview, _core.OrderedWords(words))

    @classmethod
    def create(cls, name: str, geometry: Geometry, digest: int) -> Segment:
        """Create a slab's segment and reserve its memory; the caller stores READY.

        Raises:
            SlabMemoryError: /dev/shm has no room, or this process's cgroup allows less memory; names what is needed,
                what there is, and the cure.
            SlabPermissionError: another user's file has its name.
        """
        size = geometry.total_size
        needed = memory_needed(geometry)
        room = os.statvfs(names.SHM_DIRECTORY)
        free = room.f_bavail * room.f_frsize
        if free < needed and room.f_blocks:  # 0 blocks: a tmpfs without a limit
            raise SlabMemoryError(
                f"{names.SHM_DIRECTORY} has no room for the slab: {_mib(needed)} needed, {_mib(free)} free; lower "
                "buffer.memory or shmaccum.max.processes, or enlarge it (docker run --shm-size, an emptyDir of medium "
                f"Memory in Kubernetes, mount -o remount,size=... {names.SHM_DIRECTORY})"
            )
        if limit := exceeded_limit(geometry):
            # Its pages count as this process's memory: to reserve them would end in an OOM kill without a word.
            raise SlabMemoryError(
                f"the slab needs {_mib(size)}, but the memory limit of this process's cgroup is {_mib(limit)}; lower "
                "buffer.memory, or raise the limit (docker run --memory, resources.limits.memory in Kubernetes, "
                "MemoryMax= in systemd)"
            )
        path = names.segment_path(name)
        try:
            _make_block(names.PREFIX + name, size)
            with contextlib.closing(Descriptor(open_own(path, os.O_RDWR))) as opened:
                # All pages now: one that cannot be allocated later would be a SIGBUS, not an exception.
                os.posix_fallocate(opened.number, 0, size)
                segment = cls(opened.number, geometry)
        except FileExistsError:
            raise in_the_way(path) from None
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            raise SlabMemoryError(
                f"cannot reserve the slab's {_mib(size)} in {names.SHM_DIRECTORY}, with {_mib(free)} free: {error}; "
                "lower buffer.memory or shmaccum.max.processes, or raise this process's limits (ulimit -f, -n, -v)"
            ) from error
        words = segment.words
        words[Super.MAGIC] = MAGIC
        words[Super.ABI] = ABI_VERSION
        words[Super.TOTAL_SIZE] = size
        words[Super.OWNER_UID] = os.geteuid()
        words[Super.DIGEST] = digest
        for name, word in _SIZES.items():
            words[word] = getattr(geometry, name)
        words[Super.CREATED_MS] = time.time_ns() // 1_000_000
        words[Super.TOKEN : Super.TOKEN + TOKEN_WORDS] = names.new_token()
        return segment

    @classmethod
    def open(cls, name: str, *, look: bool = False) -> Segment | None:
        """Map a slab's segment; return None if there is none, or only a dead creator's remains.

        ``look`` is for inspecting or removing the slab, which root can do with every user's.

        Raises:
            SlabPermissionError: it is another user's, or other users can open it.
            SlabAbiError: it is no slab, is truncated, or was laid out by another version.
            SlabMemoryError: this process's limits do not allow the mapping.
        """
        path = names.segment_path(name)
        try:
            opened = Descriptor(open_own(path, os.O_RDWR, look=look))
        except FileNotFoundError:
            return None
        with contextlib.closing(opened):
            size = os.fstat(opened.number).st_size
            geometry = _checked_geometry(path, os.pread(opened.number, _SUPERBLOCK.size, 0), size)
            if geometry is None:
                return None
            try:
                return cls(opened.number, geometry)
            except OSError as error:
                raise SlabMemoryError(
                    f"the {_mib(size)} of {path} cannot be mapped: {error}; raise this process's limits (ulimit -n, "
                    "-v, spark.executor.pyspark.memory)"
                ) from error

    def close(self) -> None:
        """Release the shared memory; views that something still holds have zeros from now on."""
        with contextlib.suppress(BufferError):  # after a failed attach, something can still hold views
            self.words.release()
            self.buffer.release()
        if self.core is not None:
            self.core.release()
            self.core = None


def is_slab(name: str) -> bool:
    """Return whether a segment is a slab of any version. Raises OSError: it cannot be opened, or is no regular file."""
    with contextlib.closing(Descriptor(open_own(names.segment_path(name), os.O_RDWR, look=True))) as opened:
        magic = os.pread(opened.number, WORD, Super.MAGIC * WORD)
    return int.from_bytes(magic, sys.byteorder) == MAGIC


def _checked_geometry(path: str, head: bytes, size: int) -> Geometry | None:
    """Read the superblock; return None for the remains of a dead creator."""
    if len(head) < _SUPERBLOCK.size:
        if any(head):
            raise SlabAbiError(f"{path} is {size} bytes long, too short for a slab; remove it or choose another name")
        return None
    words = _SUPERBLOCK.unpack(head)
    if not any(words[: Super.TOTAL_SIZE]):
        return None  # the creator died before its first store, the magic
    if words[Super.MAGIC] != MAGIC:
        raise SlabAbiError(f"{path} is not a slab of shmaccum; remove it or choose another shmaccum.name")
    if not any(words[Super.ABI : Super.TOTAL_SIZE]):
        return None  # the creator died before its second store, the version
    if words[Super.ABI] != ABI_VERSION:
        raise SlabAbiError(
            f"{path} has ABI version {words[Super.ABI]}, this package has version {ABI_VERSION}; stop the other "
            "version's producers and sender first, or choose another shmaccum.name. If they were killed, `shmaccum "
            "sender` of that version delivers the records they left"
        )
    if words[Super.READY] != 1:
        return None
    try:
        geometry = Geometry(**{name: words[word] for name, word in _SIZES.items()})
    except ValueError as error:
        raise SlabAbiError(f"{path} is damaged: {error}; remove it or choose another shmaccum.name") from None
    if not geometry.total_size == words[Super.TOTAL_SIZE] == size:
        raise SlabAbiError(
            f"{path} is {size} bytes long, but its superblock says {words[Super.TOTAL_SIZE]} and its sizes make "
            f"{geometry.total_size}; it is damaged: remove it or choose another shmaccum.name"
        )
    return geometry


assert _SUPERBLOCK.size == Super.length * WORD
