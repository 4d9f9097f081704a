"""What the core's tests share: the core's view of a slab that the package's Python code uses."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from shmaccum import _core
from shmaccum._core import INCARNATION_SHIFT, LOCK_POOL, LOCK_TAKEN, OWNER_SHIFT, Buffer, Geometry, MemoryTicket
from shmaccum.shm import names

LIVING, DYING = 0, 1
"""Process entries."""
ABSENT_S = 1.0
UNFINISHED = 0xFFFF


def core_segment(name: str, geometry: Geometry) -> _core.Segment:
    """Map an existing slab."""
    descriptor = os.open(names.segment_path(name), os.O_RDWR)
    try:
        return _core.Segment(descriptor, geometry)
    finally:
        os.close(descriptor)


def empty_segment(geometry: Geometry) -> _core.Segment:
    """Return a segment of zeros, which no other process sees."""
    descriptor = os.memfd_create("segment")
    try:
        os.ftruncate(descriptor, geometry.total_size)
        return _core.Segment(descriptor, geometry)
    finally:
        os.close(descriptor)


Scene = TypeVar("Scene")


class Damaged(Exception):
    """Stands for a SlabDamagedError."""


def owner(entry: int, incarnation: int = 1) -> int:
    """Return the owner bits of a process."""
    return entry << OWNER_SHIFT | incarnation << INCARNATION_SHIFT


class Slab:
    """A pool of free slots, which processes of the test use in turn, by entry.

    With ``keeps_checksums``, the checksums in the headers are among the stores of each append.
    """

    def __init__(
        self,
        slot_count: int,
        core: Any = _core,
        slot_size: int = 64,
        keeps_checksums: bool = True,
        max_topics: int = 1,
        max_partitions: int = 20,
    ) -> None:
        geometry = core.Geometry(slot_size, slot_count, 8, max_topics, max_partitions, 2, keeps_checksums)
        self.descriptor = os.memfd_create("slab")
        os.ftruncate(self.descriptor, geometry.total_size)
        self.segment = core.Segment(self.descriptor, geometry)
        self.lock = core.SlabLock(self.segment, LOCK_POOL)
        self.pool = core.BufferPool(self.segment, self.lock, Damaged)
        self.words = self.segment.writable().cast("Q")
        self.slot_count = slot_count
        self.core = core
        self._places: dict[str, tuple[int, int, Any]] = {}
        sizes = {
            "total_size": geometry.total_size,
            "slot_size": slot_size,
            "slot_count": slot_count,
            "keeps_checksums": keeps_checksums,
        }
        for name, size in sizes.items():
            self.words[self.word("superblock", name)] = size
        self.be(LIVING)
        self.pool.rebuild()

    def be(self, entry: int, incarnation: int = 1) -> int:
        """Act as another process from now on; return its ticket."""
        ticket: int = self.segment.join(entry, incarnation)
        return ticket

    def close(self) -> None:
        """Release the memory."""
        self.words.release()
        os.close(self.descriptor)

    def word(self, region: str, name: str, entry: int = 0) -> int:
        """Return the index of a word."""
        if region not in self._places:
            view = self.segment.view(region)
            begin = view.ctypes.data - self.segment.view("superblock").ctypes.data
            assert view.dtype.fields is not None
            self._places[region] = begin, view.dtype.itemsize, view.dtype.fields
        begin, size, fields = self._places[region]
        return int(begin + entry * size + fields[name][1]) // 8

    def get(self, region: str, name: str, entry: int = 0) -> int:
        """Return a word."""
        return int(self.words[self.word(region, name, entry)])

    def set(self, region: str, name: str, value: int, entry: int = 0) -> None:
        """Store a word past the core."""
        self.words[self.word(region, name, entry)] = value

    def add(self, region: str, name: str, value: int, entry: int = 0) -> None:
        """Add to a word past the core."""
        self.words[self.word(region, name, entry)] += value

    def take(self, count: int, most: int = 1) -> list[Buffer]:
        """Allocate without a wait, at most a number of buffers."""
        taken: list[Buffer] = []
        while len(taken) < most:
            before = len(taken)
            assert self.pool.allocate(taken, count) == (LOCK_TAKEN, len(taken) > before)
            if len(taken) == before:
                break
        return taken

    def wait(self, slots: int, now_s: float = 0.0, timeout_s: float = 60.0) -> MemoryTicket:
        """Return a ticket that is drawn at ``now_s``; nothing is free."""
        ticket: MemoryTicket = self.core.MemoryTicket(slots, now_s, timeout_s)
        assert self.look(ticket, now_s) == []
        return ticket

    def look(self, ticket: MemoryTicket, now_s: float = 0.0) -> list[Buffer]:
        """Look at the queue; return what was allocated."""
        taken: list[Buffer] = []
        status, _ = self.pool.look(ticket, taken, None, (), now_s, ABSENT_S)
        assert status == LOCK_TAKEN
        return taken

    def chain(self, buffer: Buffer) -> list[int]:
        """Return a buffer's slots, by its headers."""
        headers = self.segment.view("headers")
        chain = [buffer.slot]
        while len(chain) < headers["slots"][buffer.slot]:
            chain.append(int(headers["chain"][chain[-1]]) - 1)
        return chain

    def take_over(self) -> None:
        """Do with the pool what another process does after the death of the process DYING."""
        named = self.lock.owner
        assert named in (0, UNFINISHED, DYING + 1 | 1 << 16)
        self.lock.unblock(named if named != UNFINISHED else 0)
        assert self.pool.reclaim([owner(DYING)], 0.0, ABSENT_S)[0] == LOCK_TAKEN

    def die_at(self, step: int, operation: Callable[[], object]) -> None:
        """Let a process that runs an operation die before a step, and take over."""
        die_at(self, step, lambda: (self.be(DYING), operation()))
        self.take_over()


class Mapped(Protocol):
    """A slab of a test, over the core with steps."""

    core: Any
    words: memoryview

    def be(self, entry: int, incarnation: int = 1) -> int:
        """Act as a process from now on."""


def die_at(slab: Mapped, step: int, operation: Callable[[], object]) -> bool:
    """Leave a slab as a process does that dies in an operation, before a step; return whether it had that many.

    The memory is copied before the step, and is the copy again when the operation has returned. A process leaves
    nothing else, so the objects that the operation has changed are of no use after it.
    """
    counter, size, begin, copy = _steps(slab.core)
    image = ctypes.create_string_buffer(slab.words.nbytes)
    size.value, begin.value = slab.words.nbytes, ctypes.addressof(ctypes.c_char.from_buffer(slab.words))
    counter.value, copy.value = step, ctypes.addressof(image)
    try:
        operation()
        died = counter.value == 0
    finally:
        counter.value = copy.value = 0
    if died:
        slab.words.cast("B")[:] = image.raw
    slab.be(LIVING)
    return died


def deaths(make: Callable[[], Scene], operate: Callable[[Scene], object]) -> Iterator[tuple[Scene, bool]]:
    """Run an operation of the process DYING again and again, each time with its death one step later.

    Args:
        make: what the operation works on, over the core with steps: a slab, or what has one as ``slab``.
        operate: the operation.

    Yields:
        What was made, as the death leaves it, and whether there was one: not at last, behind the operation's end.
    """
    for step in range(1, 10_000):
        scene = make()
        slab: Any = getattr(scene, "slab", scene)

        def work(scene: Scene = scene, slab: Any = slab) -> None:
            slab.be(DYING)
            operate(scene)

        died = die_at(slab, step, work)
        yield scene, died
        slab.close()
        if not died:
            assert step > 2, "it has no steps"
            return
    raise AssertionError("it never ends")


def kill_at(core: Any, step: int, operation: Callable[[], object]) -> bool:
    """Run an operation in a child that is killed before a step; return whether it was, or had fewer steps."""
    child = os.fork()
    if not child:
        try:
            _steps(core)[0].value = step
            operation()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def stop_at(core: Any, step: int, operation: Callable[[], object], meanwhile: Callable[[], object]) -> bool:
    """Run an operation in a child that is stopped before a step while others go on; return whether it had that many.

    Args:
        core: with steps.
        step: before which the child is stopped.
        operation: the child's.
        meanwhile: what the others do. If the child is not stopped, they do it behind the operation.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            ctypes.c_int.in_dll(ctypes.CDLL(core.__file__), "shmaccum_steps_signal").value = signal.SIGSTOP
            _steps(core)[0].value = step
            operation()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, os.WUNTRACED)
    stopped = os.WIFSTOPPED(status)
    try:
        meanwhile()
    finally:
        if stopped:
            os.kill(child, signal.SIGCONT)
            _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return stopped


def _steps(core: Any) -> list[ctypes.c_uint64]:
    """Return the variables of a core with steps: how many are left; size, place and copy of the slab."""
    library = ctypes.CDLL(core.__file__)
    return [ctypes.c_uint64.in_dll(library, f"shmaccum_steps_{name}") for name in ("left", "size", "slab", "copy")]
